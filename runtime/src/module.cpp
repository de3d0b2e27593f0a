// torchvk_compile._runtime: the Python module.
#include "bindings.hpp"

namespace nb = nanobind;

NB_MODULE(_runtime, module) {
    // Tensors may live until the interpreter is gone; that is no leak of ours.
    nb::set_leak_warnings(false);
    torchvk::bind_exceptions(module);
    torchvk::bind_profile(module);
    torchvk::bind_device(module);
    torchvk::bind_operators(module);
    nb::module_::import_("atexit").attr("register")(module.attr("shutdown"));
}
