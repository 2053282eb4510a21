// Dry loads: a real llama.cpp lays a model out without allocating, and says what each device would hold.
//
// Calls the engine's own functions for that (common/fit.h), with the context's parameters set as llama-server sets
// them. Built and loaded together with device.cpp.

#include "fit.h"
#include "ggml-backend.h"
#include "llama.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

extern "C" ggml_backend_dev_t bare_device(int i);

extern "C" {

struct measure_request {
    const char * path;
    int32_t      n_devices;     // hardware-less devices, 0 = CPU only
    int32_t      n_ctx;         // all slots together, as -c
    int32_t      n_slots;
    int32_t      n_batch;
    int32_t      n_ubatch;
    int32_t      flash_attention;  // -1 auto, 0 off, 1 on
    int32_t      type_k;
    int32_t      type_v;
    int32_t      n_gpu_layers;  // -1 all
    int32_t      embedding;
    int32_t      kv_unified;
    int32_t      swa_full;
};

struct measure_device {
    int64_t model;
    int64_t context;
    int64_t compute;
};

struct measure_result {
    int32_t        status;        // 0 measured, 1 the engine refused
    int32_t        n_layers;      // without the output layer
    int32_t        fit_status;    // as common_params_fit_status
    int32_t        n_gpu_layers;  // what the fit decided; -1 = all, no change needed
    int32_t        n_overrides;   // tensor overrides that the fit set (parts of layers left on the host)
    float          split[4];      // layers a device, when the fit decided
    int32_t        named[512];    // blocks of these overrides; below 0, -1 - block, where only experts are named
    measure_device devices[5];    // the devices in order, the host after them
};

static llama_model_params model_params(const measure_request & r, std::vector<ggml_backend_dev_t> & devices) {
    for (int i = 0; i < r.n_devices; i++) {
        devices.push_back(bare_device(i));
    }
    devices.push_back(nullptr);
    llama_model_params params = llama_model_default_params();
    params.devices      = r.n_devices == 0 ? nullptr : devices.data();
    params.n_gpu_layers = r.n_devices == 0 ? 0 : r.n_gpu_layers;
    return params;
}

// The engine's context parameters may be longer than the headers say: fields are added now and then. They are kept in
// a wider struct, and the flags at their end are found by their defaults.
struct wide_context_params {
    llama_context_params params;
    char                 spare[64];
};

static bool * find_flags(wide_context_params & wide) {
    static const unsigned char defaults[] = { 0, 1, 1, 1, 1, 0 };  // embeddings … swa_full, kv_unified
    char * from = reinterpret_cast<char *>(&wide);
    for (size_t at = offsetof(llama_context_params, embeddings); at + sizeof defaults < sizeof wide; at++) {
        if (memcmp(from + at, defaults, sizeof defaults) == 0) {
            return reinterpret_cast<bool *>(from + at);
        }
    }
    throw std::runtime_error("the engine's context parameters have another layout: use headers of a nearer build");
}

static wide_context_params context_params(const measure_request & r) {
    using defaults_t = wide_context_params (*)();
    wide_context_params    wide = reinterpret_cast<defaults_t>(&llama_context_default_params)();
    bool *                 flags = find_flags(wide);
    llama_context_params & params = wide.params;
    params.n_ctx           = r.n_ctx;
    params.n_batch         = r.n_batch;
    params.n_ubatch        = r.n_ubatch;
    params.n_seq_max       = r.n_slots;
    params.n_outputs_max   = r.embedding ? r.n_batch : r.n_slots;
    params.flash_attn_type = static_cast<llama_flash_attn_type>(r.flash_attention);
    params.type_k          = static_cast<ggml_type>(r.type_k);
    params.type_v          = static_cast<ggml_type>(r.type_v);
    flags[0] = r.embedding;
    flags[4] = r.swa_full;
    flags[5] = r.kv_unified;
    return wide;
}

// What each device holds with the request's own number of layers.
void measure(const measure_request * request, measure_result * result) {
    std::vector<ggml_backend_dev_t> devices, found;
    const llama_model_params   mparams = model_params(*request, devices);
    wide_context_params      cparams = context_params(*request);
    uint32_t layers = 0, trained = 0, experts = 0;
    try {
        const auto data = common_get_device_memory_data(
            request->path, &mparams, &cparams.params, found, layers, trained, experts, GGML_LOG_LEVEL_ERROR);
        for (size_t i = 0; i < data.size() && i < 5; i++) {
            result->devices[i] = { (int64_t) data[i].model, (int64_t) data[i].context, (int64_t) data[i].compute };
        }
        result->n_layers = layers;
        result->status   = 0;
    } catch (const std::exception &) {
        result->status = 1;
    }
}

// What the engine's own fit decides, with `free` bytes to be left on each device.
void fit(const measure_request * request, const int64_t * free, measure_result * result) {
    std::vector<ggml_backend_dev_t> devices;
    llama_model_params   mparams = model_params(*request, devices);
    wide_context_params  cparams = context_params(*request);
    mparams.n_gpu_layers = llama_model_default_params().n_gpu_layers;

    std::vector<float>  split(llama_max_devices(), 0.0f);
    std::vector<size_t> margins(llama_max_devices(), 0);
    std::copy(free, free + 4, margins.begin());
    std::vector<llama_model_tensor_buft_override> overrides(llama_max_tensor_buft_overrides());
    memset(overrides.data(), 0, overrides.size() * sizeof overrides[0]);

    result->fit_status = common_fit_params(request->path, &mparams, &cparams.params, split.data(), overrides.data(), margins.data(), 4096,
#ifndef FIT_WITHOUT_EXTRA_MODEL
        nullptr,
#endif
        GGML_LOG_LEVEL_ERROR);
    result->n_gpu_layers = mparams.n_gpu_layers;
    result->n_overrides  = 0;
    while (overrides[result->n_overrides].pattern && result->n_overrides < 512) {
        const char * pattern = overrides[result->n_overrides].pattern;
        const int    block   = atoi(pattern + strlen("blk\\."));
        result->named[result->n_overrides++] = strstr(pattern, "exps") ? -1 - block : block;
    }
    for (int i = 0; i < 4; i++) {
        result->split[i] = split[i];
    }
}

}  // extern "C"
