// The one translation unit that holds volk's implementation.
// The header brings its source with it, both in Debian's package and in the Vulkan SDK.
#define VOLK_IMPLEMENTATION
#include <volk.h>
