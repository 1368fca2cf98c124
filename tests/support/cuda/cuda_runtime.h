/* tests/support/cuda/cuda_runtime.h - stands in for CUDA where kernels/cuda*.cu are compiled by a C++ compiler.
 *
 * So everything that these files do, but for the speed, is tested on any machine, with sanitizers. It has the part of
 * CUDA that they use, and is as unkind as CUDA may be: work and copies of a stream are done only when somebody waits
 * for them, and then alone, but every second copy to the device at once; every second time the blocks of a kernel run
 * from the last to the first, and threads, too; new memory is full of NaN. Memory of the device is plain memory, whose
 * bounds a sanitizer knows.
 *
 * SG_STANDIN_DEVICES: number of devices, 1. SG_STANDIN_BYTES: a larger piece of memory is refused. SG_STANDIN_FAILS: so
 * many kernels can be begun, the next one fails. SG_STANDIN_PRODUCTS: cuBLAS has memory for so many products. */
#ifndef SG_TESTS_SUPPORT_CUDA_RUNTIME_H
#define SG_TESTS_SUPPORT_CUDA_RUNTIME_H

#include <deque>
#include <functional>
#include <math.h>
#include <mutex>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local

typedef enum cudaError_t {
    cudaSuccess,
    cudaErrorMemoryAllocation,
    cudaErrorNoDevice,
    cudaErrorNotReady,
    cudaErrorLaunchFailure
} cudaError_t;
enum { cudaStreamNonBlocking, cudaEventDisableTiming, cudaHostRegisterPortable };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

struct standin_stream {
    std::deque<std::function<void()>> tasks;
    uint64_t n_begun = 0, n_done = 0;
};
typedef standin_stream *cudaStream_t;

/* All that was begun in the stream when it was recorded. */
struct standin_event {
    standin_stream *stream = nullptr;
    uint64_t until = 0;
};
typedef standin_event *cudaEvent_t;

struct standin_place {
    size_t x;
};
inline thread_local standin_place blockIdx, gridDim;
inline thread_local bool standin_reversed;

struct standin_state {
    std::recursive_mutex mutex; /* of everything */
    std::deque<standin_stream *> streams;
    uint64_t n_kernels = 0, n_products = 0, n_uploads = 0;
    cudaError_t failure = cudaSuccess;
};

/* Never freed: others may use it to the end of the process. */
inline standin_state &standin(void)
{
    static standin_state *state = new standin_state;
    return *state;
}

inline uint64_t standin_setting(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : usual;
}

inline uint64_t standin_count_product(void)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    return ++standin().n_products;
}

/* Does what was begun in the stream up to there, and what it waits for. */
inline void standin_run(standin_stream *stream, uint64_t until)
{
    while (stream->n_done < until) {
        const std::function<void()> task = std::move(stream->tasks.front());
        stream->tasks.pop_front();
        task();
        stream->n_done++;
    }
}

inline void standin_begin(standin_stream *stream, std::function<void()> task)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    stream->tasks.push_back(std::move(task));
    stream->n_begun++;
}

/* One kernel in one stream: call() is the kernel with its arguments, for the block that blockIdx names. */
template <class Call> void standin_launch(standin_stream *stream, size_t n_blocks, Call call)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    const bool reversed = standin().n_kernels++ % 2 == 1;
    if (standin().n_kernels > standin_setting("SG_STANDIN_FAILS", UINT64_MAX))
        standin().failure = cudaErrorLaunchFailure;
    standin_begin(stream, [=] {
        gridDim.x = n_blocks;
        standin_reversed = reversed;
        for (size_t i = 0; i < n_blocks && standin().failure == cudaSuccess; i++) {
            blockIdx.x = reversed ? n_blocks - 1 - i : i;
            call();
        }
    });
}
#define SG_CUDA_THREADS(t)                                                                                             \
    for (unsigned turn_ = 0, t = 0;                                                                                    \
         turn_ < SG_CUDA_BLOCK && (t = standin_reversed ? SG_CUDA_BLOCK - 1 - turn_ : turn_, true); turn_++)
#define SG_CUDA_BARRIER                       ((void)0)
#define SG_CUDA_LAUNCH(kernel, n_blocks, ...) standin_launch(sg_cuda_begin(), n_blocks, [=] { kernel(__VA_ARGS__); })

inline const char *cudaGetErrorString(cudaError_t error)
{
    static const char *const texts[] = {"no error", "out of memory", "no CUDA-capable device is detected", "not ready",
                                        "unspecified launch failure"};
    return texts[error];
}
inline cudaError_t cudaPeekAtLastError(void)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    return standin().failure;
}
inline cudaError_t cudaGetLastError(void)
{
    return cudaPeekAtLastError(); /* a failed kernel stays one */
}
inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = (int)standin_setting("SG_STANDIN_DEVICES", 1);
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
inline cudaError_t cudaSetDevice(int)
{
    return cudaPeekAtLastError();
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, int)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    *stream = new standin_stream;
    standin().streams.push_back(*stream);
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    standin_run(stream, stream->n_begun);
    return standin().failure;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, int)
{
    *event = new standin_event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    *event = {stream, stream->n_begun};
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, int)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    standin_begin(stream, [seen = *event] {
        if (seen.stream)
            standin_run(seen.stream, seen.until);
    });
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    if (event->stream)
        standin_run(event->stream, event->until);
    return standin().failure;
}
/* Work goes on a little while somebody asks. */
inline cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    if (event->stream && event->stream->n_done < event->until)
        standin_run(event->stream, event->stream->n_done + 1);
    if (standin().failure != cudaSuccess)
        return standin().failure;
    return !event->stream || event->stream->n_done >= event->until ? cudaSuccess : cudaErrorNotReady;
}

inline cudaError_t cudaMalloc(void **memory, size_t n_bytes)
{
    const size_t rounded = (n_bytes + 3) / 4 * 4;
    *memory = nullptr;
    if (cudaPeekAtLastError() != cudaSuccess)
        return cudaPeekAtLastError();
    if (n_bytes > standin_setting("SG_STANDIN_BYTES", SIZE_MAX) || posix_memalign(memory, 256, rounded) != 0)
        return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < rounded / 4; i++)
        ((float *)*memory)[i] = NAN;
    return cudaSuccess;
}
inline cudaError_t cudaFree(void *memory)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    for (standin_stream *stream : standin().streams)
        standin_run(stream, stream->n_begun);
    free(memory);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> lock(standin().mutex);
    standin_begin(stream, [=] { memcpy(to, from, n_bytes); });
    if (kind == cudaMemcpyHostToDevice && standin().n_uploads++ % 2 == 0)
        standin_run(stream, stream->n_begun);
    return cudaPeekAtLastError();
}
inline cudaError_t cudaHostRegister(void *host, size_t, int)
{
    return (uintptr_t)host % 4096 == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaHostUnregister(void *)
{
    return cudaSuccess;
}

#endif
