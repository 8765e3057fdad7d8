/* A scripted libcuda for tests: the calls that the probe of a card makes, with memory of this
 * process in place of a card's. What it does wrong stands in $FAKE_CUDA_STATE, a line for each card:
 *   GPU-a corrupt        one bit of what is computed is wrong
 *   GPU-a flipped        one bit of what is kept is wrong
 *   GPU-a launch         the kernel cannot be launched
 *   GPU-a hang           the kernel never ends
 *   GPU-a busy           somebody else has the card for itself
 *   GPU-a ecc            an error of memory that cannot be corrected
 * The card is that of CUDA_VISIBLE_DEVICES. The hash is computed here once more, by other code. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NO_DEVICE = 100, UNAVAILABLE = 46, LAUNCH_FAILED = 719, ECC = 214, NOT_FOUND = 500 };
typedef uint64_t place_t;

static char fault[32];

static void look(void)
{
    const char *path = getenv("FAKE_CUDA_STATE"), *card = getenv("CUDA_VISIBLE_DEVICES");
    FILE *file = path ? fopen(path, "r") : NULL;
    char name[128], what[32];
    fault[0] = 0;
    while (file && fscanf(file, "%127s %31s", name, what) == 2)
        if (card && !strcmp(card, name)) strcpy(fault, what);
    if (file) fclose(file);
}

int cuInit(unsigned flags) { look(); return flags ? 1 : OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? NO_DEVICE : OK; }

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags; (void)device;
    *context = fault;
    return !strcmp(fault, "busy") ? UNAVAILABLE : OK;
}

int cuCtxDestroy_v2(void *context) { return context == fault ? OK : 1; }
int cuMemGetInfo_v2(size_t *free_, size_t *total) { *free_ = *total = (size_t)128 << 20; return OK; }

int cuMemAlloc_v2(place_t *place, size_t size)
{
    *place = (place_t)(uintptr_t)malloc(size);
    return *place ? OK : 2;
}

int cuMemFree_v2(place_t place) { free((void *)(uintptr_t)place); return OK; }

int cuMemsetD32_v2(place_t place, unsigned word, size_t count)
{
    uint32_t *words = (uint32_t *)(uintptr_t)place;
    for (size_t i = 0; i < count; i++) words[i] = word;
    if (!strcmp(fault, "flipped")) words[count - 7] ^= 1u << 19;
    return OK;
}

int cuMemcpyDtoH_v2(void *to, place_t from, size_t size)
{
    if (!strcmp(fault, "ecc")) return ECC;
    memcpy(to, (void *)(uintptr_t)from, size);
    return OK;
}

int cuModuleLoadData(void **module, const char *ptx)
{
    *module = (void *)ptx;
    return strstr(ptx, ".visible .entry offpeak_hash(") ? OK : 218;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = module;
    return !strcmp(name, "offpeak_hash") ? OK : NOT_FOUND;
}

static uint32_t hash(uint32_t n, uint32_t seed)
{
    uint32_t h = n ^ seed;
    for (uint32_t step = 0; step < 64; step++) {
        h *= 0x9E3779B1u;
        h = (h ^ (h >> 15)) + step;
        h *= 0x85EBCA77u;
        h ^= h >> 13;
    }
    return h;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **given, void **extra)
{
    (void)function; (void)shared; (void)stream; (void)extra;
    uint32_t *words = (uint32_t *)(uintptr_t)*(place_t *)given[0], count = *(uint32_t *)given[1];
    uint32_t seed = *(uint32_t *)given[2], block[4096];
    if ((size_t)gx * gy * gz * bx * by * bz < count) return 1;
    if (!strcmp(fault, "launch")) return LAUNCH_FAILED;
    for (uint32_t i = 0; i < 4096; i++) block[i] = hash(i, seed);
    for (uint32_t i = 0; i < count; i++) words[i] = block[i & 4095];
    if (!strcmp(fault, "corrupt")) words[count / 3] ^= 1u << 7;
    return OK;
}

int cuCtxSynchronize(void)
{
    while (!strcmp(fault, "hang")) pause();
    return OK;
}

int cuGetErrorName(int code, const char **name)
{
    *name = code == UNAVAILABLE ? "CUDA_ERROR_DEVICE_UNAVAILABLE" : code == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == ECC ? "CUDA_ERROR_ECC_UNCORRECTABLE" : NULL;
    return OK;
}
