/* kernels/cuda_memory.cu - the device: its memory, the copies from and to the host, and what has failed.
 *
 * Three streams: work, and beside it a copy in each direction. An upload is waited for by the work that is begun after
 * it, a download waits for the work that was begun before. */
#include <atomic>
#include <mutex>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda_launch.h"

#define N_DOWNLOADS 64u /* events for downloads that are under way */

/* CUDA has one device per process here, as OpenBLAS has one number of threads. */
static struct {
    std::mutex mutex; /* of what is not set once by sg_cuda_start */
    bool started;
    int index;
    cudaStream_t work, up, down;
    cudaEvent_t fenced, uploaded, computed;
    cudaEvent_t downloaded[N_DOWNLOADS];
    uint64_t n_downloads; /* begun */
    cublasHandle_t blas;
    uint64_t *number;
    std::mutex number_mutex;
    std::atomic<const char *> failure;
} cuda;

static void note_words(const char *failure)
{
    const char *none = NULL;
    cuda.failure.compare_exchange_strong(none, failure);
}

void sg_cuda_note(cudaError_t error)
{
    if (error != cudaSuccess)
        note_words(cudaGetErrorString(error));
}

void sg_cuda_note_blas(cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        note_words(cublasGetStatusString(status));
}

static void choose_device(void)
{
    sg_cuda_note(cudaSetDevice(cuda.index));
}

cudaStream_t sg_cuda_begin(void)
{
    choose_device();
    return cuda.work;
}

cublasHandle_t sg_cuda_blas(void)
{
    choose_device();
    return cuda.blas;
}

static cudaError_t make_streams(void)
{
    cudaStream_t *const streams[] = {&cuda.work, &cuda.up, &cuda.down};
    cudaEvent_t *const events[] = {&cuda.fenced, &cuda.uploaded, &cuda.computed};
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < 3 && error == cudaSuccess; i++)
        error = cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking);
    for (size_t i = 0; i < 3 && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    for (size_t i = 0; i < N_DOWNLOADS && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&cuda.downloaded[i], cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&cuda.number, sizeof *cuda.number);
    return error;
}

/* In float as it is written: no sums of another precision, no TF32. */
static cublasStatus_t make_blas(void)
{
    cublasStatus_t status = cublasCreate(&cuda.blas);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetStream(cuda.blas, cuda.work);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetMathMode(cuda.blas, CUBLAS_PEDANTIC_MATH);
    return status;
}

bool sg_cuda_start(uint32_t index, char *why, size_t why_bytes)
{
    const std::lock_guard<std::mutex> lock(cuda.mutex);
    int n_devices = 0;
    if (cuda.started)
        return true;
    cudaError_t error = cudaGetDeviceCount(&n_devices);
    if (error == cudaSuccess && n_devices < 1)
        error = cudaErrorNoDevice;
    if (error == cudaSuccess) {
        cuda.index = (int)(index % (uint32_t)n_devices);
        error = cudaSetDevice(cuda.index);
    }
    if (error == cudaSuccess)
        error = make_streams();
    if (error != cudaSuccess) {
        snprintf(why, why_bytes, "%s", cudaGetErrorString(error));
        return false;
    }
    const cublasStatus_t status = make_blas();
    if (status != CUBLAS_STATUS_SUCCESS)
        snprintf(why, why_bytes, "cuBLAS: %s", cublasGetStatusString(status));
    cuda.started = status == CUBLAS_STATUS_SUCCESS;
    return cuda.started;
}

void sg_cuda_fetch(void *to_host, const void *from, size_t n_bytes)
{
    cudaError_t error = cudaMemcpyAsync(to_host, from, n_bytes, cudaMemcpyDeviceToHost, sg_cuda_begin());
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cuda.work);
    sg_cuda_note(error);
    if (cuda.failure)
        memset(to_host, 0, n_bytes);
}

uint64_t *sg_cuda_take_number(void)
{
    cuda.number_mutex.lock();
    return cuda.number;
}

void sg_cuda_give_number(void)
{
    cuda.number_mutex.unlock();
}

static void *try_alloc(size_t n_bytes)
{
    void *memory = NULL;
    choose_device();
    const cudaError_t error = cudaMalloc(&memory, n_bytes > 0 ? n_bytes : 1);
    if (error == cudaSuccess)
        return memory;
    if (error == cudaErrorMemoryAllocation)
        (void)cudaGetLastError(); /* told to the caller: no failure of the device */
    else
        sg_cuda_note(error);
    return NULL;
}

static void release(void *memory)
{
    choose_device();
    sg_cuda_note(cudaFree(memory));
}

static void fence(void)
{
    const std::lock_guard<std::mutex> lock(cuda.mutex);
    sg_cuda_note(cudaEventRecord(cuda.fenced, sg_cuda_begin()));
    sg_cuda_note(cudaStreamWaitEvent(cuda.up, cuda.fenced, 0));
}

static void upload(void *to, const void *from_host, size_t n_bytes)
{
    const std::lock_guard<std::mutex> lock(cuda.mutex);
    if (n_bytes == 0)
        return;
    choose_device();
    sg_cuda_note(cudaMemcpyAsync(to, from_host, n_bytes, cudaMemcpyHostToDevice, cuda.up));
    sg_cuda_note(cudaEventRecord(cuda.uploaded, cuda.up));
    sg_cuda_note(cudaStreamWaitEvent(cuda.work, cuda.uploaded, 0));
}

static uint64_t download(void *to_host, const void *from, size_t n_bytes)
{
    const std::lock_guard<std::mutex> lock(cuda.mutex);
    const uint64_t number = cuda.n_downloads;
    const cudaEvent_t over = cuda.downloaded[number % N_DOWNLOADS];
    if (number >= N_DOWNLOADS) /* the event belongs to an older one */
        sg_cuda_note(cudaEventSynchronize(over));
    sg_cuda_note(cudaEventRecord(cuda.computed, sg_cuda_begin()));
    sg_cuda_note(cudaStreamWaitEvent(cuda.down, cuda.computed, 0));
    if (n_bytes > 0)
        sg_cuda_note(cudaMemcpyAsync(to_host, from, n_bytes, cudaMemcpyDeviceToHost, cuda.down));
    sg_cuda_note(cudaEventRecord(over, cuda.down));
    cuda.n_downloads++;
    return number;
}

/* A download whose event belongs to a newer one is over. */
static bool has_event(uint64_t number)
{
    return cuda.n_downloads <= number + N_DOWNLOADS;
}

static bool is_over(uint64_t number)
{
    const std::lock_guard<std::mutex> lock(cuda.mutex);
    if (!has_event(number))
        return true;
    choose_device();
    const cudaError_t error = cudaEventQuery(cuda.downloaded[number % N_DOWNLOADS]);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* it stays the newest error, and is none */
        return false;
    }
    sg_cuda_note(error);
    return true;
}

static void wait_for(uint64_t number)
{
    const std::lock_guard<std::mutex> lock(cuda.mutex);
    choose_device();
    if (has_event(number))
        sg_cuda_note(cudaEventSynchronize(cuda.downloaded[number % N_DOWNLOADS]));
}

static void pin(void *host, size_t n_bytes)
{
    choose_device();
    if (cudaHostRegister(host, n_bytes, cudaHostRegisterPortable) != cudaSuccess)
        (void)cudaGetLastError(); /* copies are slower */
}

static void unpin(void *host)
{
    choose_device();
    if (cudaHostUnregister(host) != cudaSuccess)
        (void)cudaGetLastError(); /* it was not pinned */
}

static const char *failure(bool *of_memory)
{
    choose_device();
    sg_cuda_note(cudaPeekAtLastError());
    const char *words = cuda.failure;
    *of_memory = words && (strcmp(words, cudaGetErrorString(cudaErrorMemoryAllocation)) == 0 ||
                           strcmp(words, cublasGetStatusString(CUBLAS_STATUS_ALLOC_FAILED)) == 0);
    return words;
}

const sg_kernel_device sg_cuda_device = {.try_alloc = try_alloc,
                                         .release = release,
                                         .fence = fence,
                                         .upload = upload,
                                         .download = download,
                                         .is_over = is_over,
                                         .wait = wait_for,
                                         .pin = pin,
                                         .unpin = unpin,
                                         .failure = failure};
