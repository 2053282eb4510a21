// A ggml device without hardware, for engine tests.
//
// It claims every operation and hands out addresses with no memory behind them, so that a real llama.cpp lays a model
// out and plans its buffers as on GPUs of any number and size. `bare_memory` sets a device's size at any time.
// With `bare_rules` it adds what CUDA's flash attention keeps behind its result when a cache is not f16
// (ggml/src/ggml-cuda/fattn.cu) and refuses head sizes for which CUDA has no kernel.
//
// Built against the headers of a llama.cpp near the one under test; it links to nothing and finds ggml's functions
// in the process that loads it.

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int N_DEVICES = 4;
constexpr size_t ALIGNMENT = 128;

struct device {
    std::string               name;
    size_t                    total = size_t(1) << 40;
    size_t                    free  = size_t(1) << 40;
    ggml_backend_buffer_type  buffer_type = {};
    ggml_backend_device       handle      = {};
};

device                    devices[N_DEVICES];
ggml_backend_reg          registry  = {};
ggml_backend_buffer_type  host_type = {};
bool                      cuda_rules = false;
std::atomic<uintptr_t>    next_address{ uintptr_t(1) << 44 };

device * of(ggml_backend_dev_t handle) { return static_cast<device *>(handle->context); }

size_t pad(size_t n, size_t to) { return (n + to - 1) / to * to; }

// -- buffers of a device: addresses only --

void * buffer_base(ggml_backend_buffer_t buffer) { return buffer->context; }
void   buffer_free(ggml_backend_buffer_t) {}
void   buffer_memset(ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t) {}
void   buffer_set(ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t) {}
void   buffer_get(ggml_backend_buffer_t, const ggml_tensor *, void * data, size_t, size_t n) { memset(data, 0, n); }
void   buffer_clear(ggml_backend_buffer_t, uint8_t) {}

const char * type_name(ggml_backend_buffer_type_t type) { return static_cast<device *>(type->context)->name.c_str(); }
size_t       type_alignment(ggml_backend_buffer_type_t) { return ALIGNMENT; }

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_i iface = {};
    iface.free_buffer   = buffer_free;
    iface.get_base      = buffer_base;
    iface.memset_tensor = buffer_memset;
    iface.set_tensor    = buffer_set;
    iface.get_tensor    = buffer_get;
    iface.clear         = buffer_clear;
    const uintptr_t address = next_address.fetch_add(pad(size + 1, 1 << 20));
    return ggml_backend_buffer_init(type, iface, reinterpret_cast<void *>(address), size);
}

size_t type_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * t) {
    size_t size = ggml_nbytes(t);
    if (cuda_rules && t->op == GGML_OP_FLASH_ATTN_EXT) {  // f16 copies of K and V follow the result
        const ggml_tensor * k = t->src[1];
        const ggml_tensor * v = t->src[2];
        const bool v_is_k = v->view_src && (v->view_src == k || (v->view_src == k->view_src && v->view_offs == k->view_offs));
        if (k->type != GGML_TYPE_F16) {
            size = pad(size, ALIGNMENT) + ggml_nelements(k) * 2;
        }
        if (v->type != GGML_TYPE_F16 && !v_is_k) {
            size = pad(size, ALIGNMENT) + ggml_nelements(v) * 2;
        }
    }
    if (ggml_is_quantized(t->type) && t->ne[0] % 512 != 0) {  // CUDA pads quantized rows to 512 values
        size += ggml_row_size(t->type, 512 - t->ne[0] % 512);
    }
    return size;
}

// -- pinned host memory: real memory --

const char * host_name(ggml_backend_buffer_type_t) { return "BARE_Host"; }
void         host_free(ggml_backend_buffer_t buffer) { free(buffer->context); }
size_t       host_alignment(ggml_backend_buffer_type_t) { return 64; }
bool         host_is_host(ggml_backend_buffer_type_t) { return true; }

ggml_backend_buffer_t host_alloc(ggml_backend_buffer_type_t type, size_t size) {
    void * data = nullptr;
    if (posix_memalign(&data, 4096, size + 4096) != 0) {
        return nullptr;
    }
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(data, size);
    buffer->buft              = type;
    buffer->iface.free_buffer = host_free;
    return buffer;
}

// -- backend: computes nothing --

const char * backend_name(ggml_backend_t backend) { return of(backend->device)->name.c_str(); }
void         backend_free(ggml_backend_t backend) { delete backend; }
void         backend_sync(ggml_backend_t) {}
void         backend_set(ggml_backend_t, ggml_tensor *, const void *, size_t, size_t) {}
void         backend_get(ggml_backend_t, const ggml_tensor *, void * data, size_t, size_t n) { memset(data, 0, n); }
void         backend_event(ggml_backend_t, ggml_backend_event_t) {}
ggml_status  backend_compute(ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_SUCCESS; }

// -- device --

const char * device_name(ggml_backend_dev_t handle) { return of(handle)->name.c_str(); }
const char * device_description(ggml_backend_dev_t) { return "device without hardware"; }
enum ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }

void device_get_memory(ggml_backend_dev_t handle, size_t * free, size_t * total) {
    *free  = of(handle)->free;
    *total = of(handle)->total;
}

void device_props(ggml_backend_dev_t handle, ggml_backend_dev_props * props) {
    memset(props, 0, sizeof *props);
    props->name             = device_name(handle);
    props->description      = device_description(handle);
    props->type             = GGML_BACKEND_DEVICE_TYPE_GPU;
    device_get_memory(handle, &props->memory_free, &props->memory_total);
    props->caps.async       = true;
    props->caps.host_buffer = true;
    props->caps.events      = true;
}

ggml_backend_t device_init(ggml_backend_dev_t handle, const char *) {
    static ggml_guid guid = { 'n', 'o', ' ', 'h', 'a', 'r', 'd', 'w', 'a', 'r', 'e', ' ', 'a', 't', 'a', 'l' };
    auto * backend = new ggml_backend();
    backend->guid                   = &guid;
    backend->device                 = handle;
    backend->context                = handle->context;
    backend->iface.get_name         = backend_name;
    backend->iface.free             = backend_free;
    backend->iface.synchronize      = backend_sync;
    backend->iface.graph_compute    = backend_compute;
    backend->iface.set_tensor_async = backend_set;
    backend->iface.get_tensor_async = backend_get;
    backend->iface.event_record     = backend_event;
    backend->iface.event_wait       = backend_event;
    return backend;
}

bool cuda_has_kernel(const ggml_tensor * op) {
    const int64_t k = op->src[1]->ne[0], v = op->src[2]->ne[0], shared = op->src[0]->ne[2] / op->src[1]->ne[2];
    const bool grouped = shared >= 2 && op->src[3] && op->src[1]->ne[1] % 256 == 0;
    switch (k) {
        case 40: case 64: case 72: case 80: case 96: case 112: case 128: case 256: return v == k;
        case 192: return v == 128 && grouped && shared % 8 == 0;
        case 320: return v == 256 && grouped && shared % 32 == 0;
        case 512: return v == k && grouped;
        case 576: return v == 512 && grouped;
        default: return false;
    }
}

bool device_supports(ggml_backend_dev_t, const ggml_tensor * op) {
    if (op->op != GGML_OP_FLASH_ATTN_EXT) {
        return true;
    }
    return !cuda_rules || cuda_has_kernel(op);
}

bool device_offloads(ggml_backend_dev_t, const ggml_tensor * op) {  // as CUDA: batches of 32 and more
    switch (op->op) {
        case GGML_OP_GET_ROWS: return false;
        case GGML_OP_MUL_MAT: return op->ne[1] >= 32;
        case GGML_OP_MUL_MAT_ID: case GGML_OP_ROPE: case GGML_OP_ROPE_BACK: return op->ne[2] >= 32;
        default: return ggml_nrows(op) >= 32;
    }
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t handle) { return &of(handle)->buffer_type; }
ggml_backend_buffer_type_t device_host_type(ggml_backend_dev_t) { return &host_type; }
bool device_supports_type(ggml_backend_dev_t handle, ggml_backend_buffer_type_t type) { return type == &of(handle)->buffer_type; }

ggml_backend_event_t event_new(ggml_backend_dev_t handle) { return new ggml_backend_event{ handle, nullptr }; }
void event_free(ggml_backend_dev_t, ggml_backend_event_t event) { delete event; }
void event_sync(ggml_backend_dev_t, ggml_backend_event_t) {}

// -- registry --

const char * registry_name(ggml_backend_reg_t) { return "BARE"; }
size_t       registry_count(ggml_backend_reg_t) { return N_DEVICES; }
ggml_backend_dev_t registry_device(ggml_backend_reg_t, size_t i) { return &devices[i].handle; }
void *       registry_address(ggml_backend_reg_t, const char *) { return nullptr; }

void set_up(int i) {
    device & d = devices[i];
    d.name = "BARE" + std::to_string(i);
    d.buffer_type.iface.get_name       = type_name;
    d.buffer_type.iface.alloc_buffer   = type_alloc;
    d.buffer_type.iface.get_alignment  = type_alignment;
    d.buffer_type.iface.get_alloc_size = type_alloc_size;
    d.buffer_type.device               = &d.handle;
    d.buffer_type.context              = &d;
    ggml_backend_device_i & f = d.handle.iface;
    f.get_name             = device_name;
    f.get_description      = device_description;
    f.get_memory           = device_get_memory;
    f.get_type             = device_type;
    f.get_props            = device_props;
    f.init_backend         = device_init;
    f.get_buffer_type      = device_buffer_type;
    f.get_host_buffer_type = device_host_type;
    f.supports_op          = device_supports;
    f.supports_buft        = device_supports_type;
    f.offload_op           = device_offloads;
    f.event_new            = event_new;
    f.event_free           = event_free;
    f.event_synchronize    = event_sync;
    d.handle.reg     = &registry;
    d.handle.context = &d;
}

}  // namespace

extern "C" ggml_backend_dev_t bare_device(int i) { return &devices[i].handle; }

extern "C" void bare_memory(int i, size_t free, size_t total) {
    devices[i].free  = free;
    devices[i].total = total;
}

extern "C" void bare_rules(bool cuda) { cuda_rules = cuda; }

extern "C" ggml_backend_reg_t ggml_backend_init(void) {
    if (registry.api_version == 0) {
        for (int i = 0; i < N_DEVICES; i++) {
            set_up(i);
        }
        host_type.iface.get_name      = host_name;
        host_type.iface.alloc_buffer  = host_alloc;
        host_type.iface.get_alignment = host_alignment;
        host_type.iface.is_host       = host_is_host;
        host_type.device              = &devices[0].handle;
        registry.api_version            = GGML_BACKEND_API_VERSION;
        registry.iface.get_name         = registry_name;
        registry.iface.get_device_count = registry_count;
        registry.iface.get_device       = registry_device;
        registry.iface.get_proc_address = registry_address;
    }
    return &registry;
}
