/* A scripted NVML for tests: part of the interface that NVIDIA publishes in nvml.h, answered from a
 * text file ($FAKE_NVML_STATE), which is read again whenever it was replaced. It is compiled against
 * NVIDIA's own header, so the compiler checks every signature and structure.
 *
 * Lines of the file, key=value separated by blanks (in names "_" stands for a blank):
 *   driver version=580.82.07
 *   clock  us=1700000000000000                      absent: the wall clock
 *   gpu    i=0 uuid=GPU-a name=NVIDIA_H100 mem=85899345920 mig=0 nvlink=1
 *          mig=1: MIG mode is on; mig=-1: the card knows no MIG
 *          remap=1: a row waits for a reset; remap=2: no spare row is left; retire=1: a page waits
 *          lanes=16 generation=5 replays=0: its link to the host
 *          ecc=3 ecc_ever=9: uncorrected errors; slowed=0x40: bits of clock event reasons
 *          idle_w=60 busy_w=400 since=US mj=5000: it counts energy: mj, and from then on its watts, busy_w
 *          of them by how busy its processes keep it; an MIG instance by its slices
 *          gpm=1: it measures MIG instances; acct=1 acct_size=4: accounting mode is on
 *   mig    gpu=0 i=0 gi=7 ci=0 uuid=MIG-a slices=3 mem=42949672960
 *          start=4 profile=2                      the owner made it there (index of a profile below)
 *   proc   gpu=0 pid=123 mem=1073741824 sm=80 start=US end=US gi=7 ci=0      end=0: still there
 *          mps=1: it uses the card through MPS, so it is listed apart
 *   sample gpu=0 pid=123 sm=80 until=US             one more sample, whatever it says
 *   event  gpu=0 data=79 seq=1                      an XID
 *   err    fn=nvmlDeviceGetName gpu=0 code=15       fn=*: every call; gpu=-1: whatever the GPU
 *
 * MIG instances are made and removed by the rules of an H100 with 80 GB (profiles, places, media
 * engines) with the driver's error codes. They are kept in $FAKE_NVML_STATE.made, so that they
 * outlive the process, as the driver's do.
 *
 * Process utilisation answers as the driver does: at most one entry for each process that was busy
 * in its latest whole second, only if newer than asked for; with no entry, NOT_FOUND.
 */
#define _GNU_SOURCE
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 16, SLOTS = 8, PROCS = 256, EXTRAS = 64, SECOND_US = 1000000, IDS = 32, MADE = 64 };
typedef unsigned long long u64;

typedef struct { int used, gi, ci, slices, start, profile; char uuid[96]; u64 mem; } instance_t;
typedef struct { int used, mig, nvlink, remap, retire, lanes, generation, replays, gpm, acct, acct_size;
                 char uuid[96], name[96]; u64 mem, ecc, ecc_ever, slowed, idle_w, busy_w, since, mj;
                 instance_t slot[SLOTS]; } gpu_t;
typedef struct { int gpu, gi, ci, mps; unsigned pid, sm; u64 mem, start, end; } proc_t;
typedef struct { int gpu; unsigned pid, sm; u64 until; } sample_t;
typedef struct { int gpu; unsigned seq; u64 data; } event_t;
typedef struct { char fn[64]; int gpu, code; } err_t;
typedef struct { int gpu, slot; } handle_t;          /* slot -1: the card itself */
typedef struct { int watched[GPUS]; unsigned seen; } events_t;
typedef struct { int used, card, id, profile, start, ci, slot; } made_t;       /* ci -1: none */
typedef struct { int card, id; } part_t;                   /* a GPU instance, or its compute one */

static gpu_t gpus[GPUS];
static proc_t procs[PROCS];
static sample_t samples[EXTRAS];
static event_t events[EXTRAS];
static err_t errs[EXTRAS];
static int gpu_count, proc_count, sample_count, event_count, err_count, references;
static handle_t cards[GPUS], instances[GPUS][SLOTS];
static made_t made[MADE];
static part_t parts[GPUS][IDS];
static char driver[64];
static u64 fixed_us;
static struct stat read_state;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* --- the script ------------------------------------------------------------------------------ */

static const char *value(const char *line, const char *key)
{
    static __thread char found[128];
    size_t length = strlen(key);
    for (const char *p = line; *p;) {
        while (*p == ' ' || *p == '\n') p++;
        if (!strncmp(p, key, length) && p[length] == '=') {
            size_t n = strcspn(p + length + 1, " \n");
            snprintf(found, sizeof found, "%.*s", (int)n, p + length + 1);
            return found;
        }
        p += strcspn(p, " ");
    }
    return NULL;
}

static u64 number(const char *line, const char *key, u64 otherwise)
{
    const char *text = value(line, key);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static int small(const char *line, const char *key, int otherwise)
{
    const char *text = value(line, key);
    return text ? atoi(text) : otherwise;
}

static void text(const char *line, const char *key, char *to, size_t size, const char *otherwise)
{
    const char *found = value(line, key);
    snprintf(to, size, "%s", found ? found : otherwise);
}

static void take_gpu(const char *line)
{
    int i = small(line, "i", 0);
    if (i < 0 || i >= GPUS) return;
    gpu_t *gpu = &gpus[i];
    gpu->used = 1;
    gpu->mig = small(line, "mig", 0);
    gpu->nvlink = small(line, "nvlink", 0);
    gpu->remap = small(line, "remap", 0);
    gpu->retire = small(line, "retire", 0);
    gpu->lanes = small(line, "lanes", 16);
    gpu->generation = small(line, "generation", 5);
    gpu->replays = small(line, "replays", 0);
    gpu->ecc = number(line, "ecc", 0);
    gpu->ecc_ever = number(line, "ecc_ever", 0);
    gpu->slowed = number(line, "slowed", 0);
    gpu->gpm = small(line, "gpm", 0);
    gpu->acct = small(line, "acct", 0);
    gpu->acct_size = small(line, "acct_size", 4000);
    gpu->idle_w = number(line, "idle_w", 0);
    gpu->busy_w = number(line, "busy_w", 0);
    gpu->since = number(line, "since", 0);
    gpu->mj = number(line, "mj", 0);
    gpu->mem = number(line, "mem", 85899345920ULL);
    text(line, "uuid", gpu->uuid, sizeof gpu->uuid, "GPU-0");
    text(line, "name", gpu->name, sizeof gpu->name, "NVIDIA_H100_80GB_HBM3");
    for (char *c = gpu->name; *c; c++) if (*c == '_') *c = ' ';
    if (i >= gpu_count) gpu_count = i + 1;
}

static void take_instance(const char *line)
{
    int g = small(line, "gpu", 0), i = small(line, "i", 0);
    if (g < 0 || g >= GPUS || i < 0 || i >= SLOTS) return;
    instance_t *slot = &gpus[g].slot[i];
    *slot = (instance_t){ .used = 1, .gi = small(line, "gi", 0), .ci = small(line, "ci", 0),
                          .slices = small(line, "slices", 1), .mem = number(line, "mem", 0),
                          .start = small(line, "start", -1), .profile = small(line, "profile", 0) };
    text(line, "uuid", slot->uuid, sizeof slot->uuid, "MIG-0");
}

static void take(const char *line)
{
    int gpu = small(line, "gpu", 0);
    if (!strncmp(line, "driver ", 7)) text(line, "version", driver, sizeof driver, "0");
    else if (!strncmp(line, "clock ", 6)) fixed_us = number(line, "us", 0);
    else if (!strncmp(line, "gpu ", 4)) take_gpu(line);
    else if (!strncmp(line, "mig ", 4)) take_instance(line);
    else if (!strncmp(line, "proc ", 5) && proc_count < PROCS)
        procs[proc_count++] = (proc_t){ .gpu = gpu, .pid = small(line, "pid", 0),
            .sm = small(line, "sm", 0), .mem = number(line, "mem", 0),
            .start = number(line, "start", 0), .end = number(line, "end", 0),
            .gi = small(line, "gi", -1), .ci = small(line, "ci", -1), .mps = small(line, "mps", 0) };
    else if (!strncmp(line, "sample ", 7) && sample_count < EXTRAS)
        samples[sample_count++] = (sample_t){ .gpu = gpu, .pid = small(line, "pid", 0),
            .sm = (unsigned)number(line, "sm", 0), .until = number(line, "until", 0) };
    else if (!strncmp(line, "event ", 6) && event_count < EXTRAS)
        events[event_count++] = (event_t){ .gpu = gpu, .data = number(line, "data", 0),
            .seq = small(line, "seq", 1) };
    else if (!strncmp(line, "err ", 4) && err_count < EXTRAS) {
        err_t *err = &errs[err_count++];
        text(line, "fn", err->fn, sizeof err->fn, "*");
        err->gpu = small(line, "gpu", -1);
        err->code = small(line, "code", NVML_ERROR_UNKNOWN);
    }
}

static int script(const char *path, struct stat now)
{
    if (now.st_ino == read_state.st_ino && now.st_size == read_state.st_size &&
        now.st_mtim.tv_sec == read_state.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == read_state.st_mtim.tv_nsec) return 0;
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    read_state = now;
    memset(gpus, 0, sizeof gpus);
    gpu_count = proc_count = sample_count = event_count = err_count = 0;
    fixed_us = 0;
    char line[1024];
    while (fgets(line, sizeof line, file)) take(line);
    fclose(file);
    return 0;
}

static void merge(void);

static int load(void)
{
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now) || script(path, now)) return -1;
    merge();
    return 0;
}

static u64 now_us(void)
{
    if (fixed_us) return fixed_us;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (u64)t.tv_sec * SECOND_US + t.tv_nsec / 1000;
}

/* --- entering a call ------------------------------------------------------------------------- */

static nvmlReturn_t enter(const char *fn, int gpu)
{
    if (!references) return NVML_ERROR_UNINITIALIZED;
    if (load()) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (gpu >= 0 && (gpu >= GPUS || !gpus[gpu].used)) return NVML_ERROR_GPU_IS_LOST;
    for (int i = 0; i < err_count; i++)
        if ((!strcmp(errs[i].fn, "*") || !strcmp(errs[i].fn, fn)) &&
            (errs[i].gpu < 0 || errs[i].gpu == gpu)) return errs[i].code;
    return NVML_SUCCESS;
}

#define LEAVE(code) do { nvmlReturn_t code_ = (code); pthread_mutex_unlock(&lock); return code_; } while (0)
#define ENTER(gpu) \
    pthread_mutex_lock(&lock); \
    nvmlReturn_t entered = enter(__func__, (gpu)); \
    if (entered) LEAVE(entered)
#define ENTER_DEVICE(device) \
    handle_t *h = (handle_t *)(device); \
    if (!h) return NVML_ERROR_INVALID_ARGUMENT; \
    ENTER(h->gpu); \
    gpu_t *gpu = &gpus[h->gpu]; \
    (void)gpu

static int is_on(const proc_t *p, const handle_t *h, u64 t)
{
    return p->gpu == h->gpu && p->start <= t && (!p->end || p->end > t) &&
           (h->slot < 0 || p->gi == gpus[h->gpu].slot[h->slot].gi);
}

/* --- the library ----------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    if (load()) LEAVE(NVML_ERROR_DRIVER_NOT_LOADED);
    for (int g = 0; g < GPUS; g++) {
        cards[g] = (handle_t){ g, -1 };
        for (int s = 0; s < SLOTS; s++) instances[g][s] = (handle_t){ g, s };
    }
    references++;
    nvmlReturn_t code = enter(__func__, -1);
    if (code) references--;
    LEAVE(code);
}

nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    if (!references) LEAVE(NVML_ERROR_UNINITIALIZED);
    references--;
    LEAVE(NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    switch (code) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "RM has detected an NVML/RM version mismatch.";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    ENTER(-1);
    snprintf(version, length, "%s", driver);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(-1);
    *count = gpu_count;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    ENTER(-1);
    if ((int)index >= gpu_count) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t code = enter(__func__, index);
    if (!code) *device = (nvmlDevice_t)&cards[index];
    LEAVE(code);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    ENTER(-1);
    for (int g = 0; g < gpu_count; g++) {
        if (!gpus[g].used) continue;
        if (!strcmp(gpus[g].uuid, uuid)) {
            nvmlReturn_t code = enter(__func__, g);
            if (!code) *device = (nvmlDevice_t)&cards[g];
            LEAVE(code);
        }
        for (int s = 0; s < SLOTS; s++)
            if (gpus[g].slot[s].used && !strcmp(gpus[g].slot[s].uuid, uuid)) {
                *device = (nvmlDevice_t)&instances[g][s];
                LEAVE(NVML_SUCCESS);
            }
    }
    LEAVE(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    ENTER_DEVICE(device);
    snprintf(name, length, "%s", gpu->name);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    ENTER_DEVICE(device);
    snprintf(uuid, length, "%s", h->slot < 0 ? gpu->uuid : gpu->slot[h->slot].uuid);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ENTER_DEVICE(device);
    u64 used = 0;
    for (int i = 0; i < proc_count; i++) if (is_on(&procs[i], h, now_us())) used += procs[i].mem;
    memory->total = h->slot < 0 ? gpu->mem : gpu->slot[h->slot].mem;
    memory->used = used;
    memory->free = memory->total - used;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER_DEVICE(device);
    *major = 9;
    *minor = 0;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status)
{
    ENTER_DEVICE(one);
    gpu_t *far = &gpus[((handle_t *)other)->gpu];
    int linked = index == NVML_P2P_CAPS_INDEX_NVLINK && gpu->nvlink && gpu->nvlink == far->nvlink;
    *status = linked ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    LEAVE(NVML_SUCCESS);
}

/* --- wear ------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                       unsigned *pending, unsigned *failed)
{
    ENTER_DEVICE(device);
    *corrected = 0;
    *uncorrected = gpu->remap > 0;
    *pending = gpu->remap == 1;
    *failed = gpu->remap == 2;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending)
{
    ENTER_DEVICE(device);
    *pending = gpu->retire ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t since, u64 *count)
{
    ENTER_DEVICE(device);
    *count = type != NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? 0 : since == NVML_VOLATILE_ECC ? gpu->ecc : gpu->ecc_ever;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, u64 *reasons)
{
    ENTER_DEVICE(device);
    *reasons = gpu->slowed;
    LEAVE(NVML_SUCCESS);
}

/* --- the link to the host -------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *lanes)
{
    ENTER_DEVICE(device);
    *lanes = gpu->lanes;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    ENTER_DEVICE(device);
    *generation = gpu->generation;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *replays)
{
    ENTER_DEVICE(device);
    *replays = gpu->replays;
    LEAVE(NVML_SUCCESS);
}

/* --- MIG ------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    ENTER_DEVICE(device);
    if (gpu->mig < 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = gpu->mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    ENTER_DEVICE(device);
    *count = gpu->mig > 0 ? 7 : 0;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *found)
{
    ENTER_DEVICE(device);
    if (gpu->mig <= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (index >= SLOTS || !gpu->slot[index].used) LEAVE(NVML_ERROR_NOT_FOUND);
    *found = (nvmlDevice_t)&instances[h->gpu][index];
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    ENTER_DEVICE(device);
    if (h->slot < 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    memset(attributes, 0, sizeof *attributes);
    attributes->gpuInstanceSliceCount = gpu->slot[h->slot].slices;
    attributes->computeInstanceSliceCount = gpu->slot[h->slot].slices;
    attributes->memorySizeMB = gpu->slot[h->slot].mem >> 20;
    LEAVE(NVML_SUCCESS);
}

/* What `nvidia-smi mig -lgip` and -lgipp say of an H100 80GB: profile number, id, slices, places. */
static const struct { unsigned number, id, compute, memory, media, mib; const char *name, *starts; } profiles[] = {
    { NVML_GPU_INSTANCE_PROFILE_1_SLICE, 19, 1, 1, 0, 9984, "MIG 1g.10gb", "0123456" },
    { NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, 20, 1, 1, 1, 9984, "MIG 1g.10gb+me", "0123456" },
    { NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, 15, 1, 2, 0, 20096, "MIG 1g.20gb", "0246" },
    { NVML_GPU_INSTANCE_PROFILE_2_SLICE, 14, 2, 2, 0, 20096, "MIG 2g.20gb", "024" },
    { NVML_GPU_INSTANCE_PROFILE_3_SLICE, 9, 3, 4, 0, 40448, "MIG 3g.40gb", "04" },
    { NVML_GPU_INSTANCE_PROFILE_4_SLICE, 5, 4, 4, 0, 40448, "MIG 4g.40gb", "0" },
    { NVML_GPU_INSTANCE_PROFILE_7_SLICE, 0, 7, 8, 0, 80896, "MIG 7g.80gb", "0" },
};
enum { PROFILES = sizeof profiles / sizeof *profiles };

static void made_path(char *to, size_t size) { snprintf(to, size, "%s.made", getenv("FAKE_NVML_STATE")); }

/* Read what was made, and show it among the instances of the script. */
static void merge(void)
{
    char from[512];
    made_path(from, sizeof from);
    memset(made, 0, sizeof made);
    FILE *file = fopen(from, "rb");
    if (file) {
        if (fread(made, sizeof made, 1, file) != 1) memset(made, 0, sizeof made);
        fclose(file);
    }
    for (int g = 0; g < GPUS; g++)
        for (int s = 0; s < SLOTS; s++) if (gpus[g].slot[s].used == 2) gpus[g].slot[s].used = 0;
    for (int m = 0; m < MADE; m++) {
        if (!made[m].used || made[m].ci < 0) continue;
        instance_t *slot = &gpus[made[m].card].slot[made[m].slot];
        *slot = (instance_t){ .used = 2, .gi = made[m].id, .ci = made[m].ci, .start = made[m].start,
            .slices = profiles[made[m].profile].compute,
            .mem = (u64)profiles[made[m].profile].mib << 20, .profile = made[m].profile };
        char card[96];
        memcpy(card, gpus[made[m].card].uuid, sizeof card);
        snprintf(slot->uuid, sizeof slot->uuid, "MIG-%.40s.%d.%d", card, made[m].id, made[m].ci);
    }
}

static void keep(void)
{
    char to[512], new[520];
    made_path(to, sizeof to);
    snprintf(new, sizeof new, "%s.new", to);
    FILE *file = fopen(new, "wb");
    if (!file) return;
    fwrite(made, sizeof made, 1, file);
    fclose(file);
    rename(new, to);
    merge();
}

static made_t *made_of(const part_t *part)
{
    for (int m = 0; m < MADE; m++)
        if (made[m].used && made[m].card == part->card && made[m].id == part->id) return &made[m];
    return NULL;
}

/* Place and profile of the GPU instance of that id, whoever made it; 0: there is none. */
static int found(int card, int id, int *profile, int *start)
{
    part_t part = { card, id };
    made_t *mine = made_of(&part);
    if (mine) { *profile = mine->profile; *start = mine->start; return 1; }
    for (int s = 0; s < SLOTS; s++) {
        instance_t *slot = &gpus[card].slot[s];
        if (slot->used == 1 && slot->start >= 0 && slot->gi == id) {
            *profile = slot->profile;
            *start = slot->start;
            return 1;
        }
    }
    return 0;
}

static int profile_of_id(unsigned id)
{
    for (int p = 0; p < PROFILES; p++) if (profiles[p].id == id) return p;
    return -1;
}

static int profile_of_number(unsigned number)
{
    for (int p = 0; p < PROFILES; p++) if (profiles[p].number == number) return p;
    return -1;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info)
{
    ENTER_DEVICE(device);
    int p = profile_of_number(profile);
    if (gpu->mig < 0 || p < 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (info->version != nvmlGpuInstanceProfileInfo_v2) LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memset(info, 0, sizeof *info);
    info->version = nvmlGpuInstanceProfileInfo_v2;
    info->id = profiles[p].id;
    info->sliceCount = profiles[p].compute;
    info->instanceCount = strlen(profiles[p].starts);
    info->memorySizeMB = profiles[p].mib;
    info->ofaCount = info->jpegCount = profiles[p].media;
    snprintf(info->name, sizeof info->name, "%s", profiles[p].name);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile,
                                                 nvmlGpuInstanceProfileInfo_t *info)
{
    ENTER_DEVICE(device);
    int p = profile_of_number(profile);
    if (gpu->mig < 0 || p < 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    memset(info, 0, sizeof *info);
    info->id = profiles[p].id;
    info->sliceCount = profiles[p].compute;
    info->instanceCount = strlen(profiles[p].starts);
    info->memorySizeMB = profiles[p].mib;
    info->ofaCount = info->jpegCount = profiles[p].media;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                           nvmlGpuInstancePlacement_t *places, unsigned *count)
{
    ENTER_DEVICE(device);
    int p = profile_of_id(id);
    if (gpu->mig <= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (p < 0) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *count = strlen(profiles[p].starts);
    for (unsigned i = 0; places && i < *count; i++)
        places[i] = (nvmlGpuInstancePlacement_t){ profiles[p].starts[i] - '0', profiles[p].memory };
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances_, unsigned *count)
{
    ENTER_DEVICE(device);
    int p = profile_of_id(id), profile, start;
    if (gpu->mig <= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (p < 0) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (int i = 0; i < IDS; i++) {
        parts[h->gpu][i] = (part_t){ h->gpu, i };
        if (found(h->gpu, i, &profile, &start) && profile == p)
            instances_[(*count)++] = (nvmlGpuInstance_t)&parts[h->gpu][i];
    }
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
                                                      const nvmlGpuInstancePlacement_t *place,
                                                      nvmlGpuInstance_t *instance)
{
    ENTER_DEVICE(device);
    int p = profile_of_id(id), profile, start, media = 0, free_id = -1;
    unsigned compute = 0, taken = 0;
    if (gpu->mig <= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (p < 0 || place->size != profiles[p].memory || place->start > 7 ||
        !strchr(profiles[p].starts, '0' + (int)place->start)) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    for (int i = IDS - 1; i > 0; i--) {
        if (!found(h->gpu, i, &profile, &start)) { free_id = i; continue; }
        compute += profiles[profile].compute;
        media |= profiles[profile].media;
        taken |= ((1u << profiles[profile].memory) - 1) << start;
    }
    unsigned wanted = ((1u << place->size) - 1) << place->start;
    if (taken & wanted || compute + profiles[p].compute > 7 || (media && profiles[p].media) || free_id < 0)
        LEAVE(NVML_ERROR_INSUFFICIENT_RESOURCES);
    for (int m = 0; m < MADE; m++) {
        if (made[m].used) continue;
        made[m] = (made_t){ .used = 1, .card = h->gpu, .id = free_id, .profile = p, .start = place->start, .ci = -1 };
        keep();
        parts[h->gpu][free_id] = (part_t){ h->gpu, free_id };
        *instance = (nvmlGpuInstance_t)&parts[h->gpu][free_id];
        LEAVE(NVML_SUCCESS);
    }
    LEAVE(NVML_ERROR_INSUFFICIENT_RESOURCES);
}

#define ENTER_PART(part) \
    part_t *which = (part_t *)(part); \
    if (!which) return NVML_ERROR_INVALID_ARGUMENT; \
    ENTER(which->card); \
    int profile, start; \
    if (!found(which->card, which->id, &profile, &start)) LEAVE(NVML_ERROR_INVALID_ARGUMENT)

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    ENTER_PART(instance);
    info->device = (nvmlDevice_t)&cards[which->card];
    info->id = which->id;
    info->profileId = profiles[profile].id;
    info->placement = (nvmlGpuInstancePlacement_t){ start, profiles[profile].memory };
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned number,
                                                           unsigned engines, nvmlComputeInstanceProfileInfo_v2_t *info)
{
    ENTER_PART(instance);
    unsigned slices = number == NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE ? 7 : number + 1;
    if (engines != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED || number > NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE ||
        slices > profiles[profile].compute) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (info->version != nvmlComputeInstanceProfileInfo_v2) LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memset(info, 0, sizeof *info);
    info->version = nvmlComputeInstanceProfileInfo_v2;
    info->id = number;
    info->sliceCount = slices;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned id,
                                                  nvmlComputeInstance_t *compute)
{
    ENTER_PART(instance);
    made_t *mine = made_of(which);
    unsigned slices = id == NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE ? 7 : id + 1;
    if (!mine || mine->ci >= 0 || slices > profiles[profile].compute) LEAVE(NVML_ERROR_INSUFFICIENT_RESOURCES);
    for (int s = 0; s < SLOTS; s++) {
        if (gpus[which->card].slot[s].used) continue;
        mine->ci = 0;
        mine->slot = s;
        keep();
        *compute = (nvmlComputeInstance_t)which;
        LEAVE(NVML_SUCCESS);
    }
    LEAVE(NVML_ERROR_INSUFFICIENT_RESOURCES);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned id,
                                                nvmlComputeInstance_t *computes, unsigned *count)
{
    ENTER_PART(instance);
    made_t *mine = made_of(which);
    unsigned slices = id == NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE ? 7 : id + 1;
    *count = 0;
    if (mine && mine->ci >= 0 && slices == profiles[profile].compute)
        computes[(*count)++] = (nvmlComputeInstance_t)which;
    LEAVE(NVML_SUCCESS);
}

static int is_in_use(const part_t *part)
{
    u64 t = now_us();
    for (int i = 0; i < proc_count; i++)
        if (procs[i].gpu == part->card && procs[i].gi == part->id && procs[i].start <= t &&
            (!procs[i].end || procs[i].end > t)) return 1;
    return 0;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    ENTER_PART(compute);
    made_t *mine = made_of(which);
    if (!mine || mine->ci < 0) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    if (is_in_use(which)) LEAVE(NVML_ERROR_IN_USE);
    mine->ci = -1;
    keep();
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    ENTER_PART(instance);
    made_t *mine = made_of(which);
    if (!mine) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    if (mine->ci >= 0) LEAVE(NVML_ERROR_IN_USE);
    mine->used = 0;
    keep();
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    ENTER_DEVICE(device);
    if (h->slot < 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *id = gpu->slot[h->slot].gi;
    LEAVE(NVML_SUCCESS);
}

/* --- processes ------------------------------------------------------------------------------- */

static nvmlReturn_t list(const handle_t *h, int mps, unsigned *count, nvmlProcessInfo_t *infos)
{
    unsigned room = *count, found = 0;
    u64 t = now_us();
    for (int i = 0; i < proc_count; i++) {
        if (procs[i].mps != mps || !is_on(&procs[i], h, t)) continue;
        if (infos && found < room)
            infos[found] = (nvmlProcessInfo_t){ .pid = procs[i].pid, .usedGpuMemory = procs[i].mem,
                .gpuInstanceId = (unsigned)procs[i].gi, .computeInstanceId = (unsigned)procs[i].ci };
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device);
    LEAVE(list(h, 0, count, infos));
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device);
    LEAVE(list(h, 1, count, infos));
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                             unsigned *count, u64 last_us)
{
    ENTER_DEVICE(device);
    if (gpu->mig > 0 || h->slot >= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    unsigned room = out ? *count : 0, found = 0;
    u64 t = now_us();
    for (int i = 0; i < proc_count + sample_count; i++) {
        nvmlProcessUtilizationSample_t one = { 0 };
        if (i < proc_count) {
            const proc_t *p = &procs[i];
            u64 busy_until = p->end && p->end < t ? p->end : t;
            one.timeStamp = busy_until / SECOND_US * SECOND_US;
            one.pid = p->pid;
            one.smUtil = p->sm;
            if (p->gpu != h->gpu || !p->sm || one.timeStamp <= p->start) continue;
        } else {
            const sample_t *s = &samples[i - proc_count];
            one.timeStamp = s->until;
            one.pid = s->pid;
            one.smUtil = s->sm;
            if (s->gpu != h->gpu) continue;
        }
        if (one.timeStamp <= last_us) continue;
        if (found < room) out[found] = one;
        found++;
    }
    if (!found) LEAVE(NVML_ERROR_NOT_FOUND);
    if (found > room) {
        *count = 100;                      /* as the driver says, however many there are */
        LEAVE(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    *count = found;
    LEAVE(NVML_SUCCESS);
}

/* --- energy, GPM, accounting ------------------------------------------------------------------- */

/* How long a process was busy up to t, in microseconds of the whole of its device. */
static u64 busy_us(const proc_t *p, u64 t)
{
    u64 end = p->end && p->end < t ? p->end : t;
    return p->start < end ? (end - p->start) * p->sm / 100 : 0;
}

static int slices_of(const gpu_t *gpu, int gi)
{
    for (int s = 0; s < SLOTS; s++)
        if (gpu->slot[s].used && gpu->slot[s].gi == gi) return gpu->slot[s].slices;
    return 7;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, u64 *energy)
{
    ENTER_DEVICE(device);
    if (!gpu->since || h->slot >= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    u64 now = now_us(), watt_us = (now - gpu->since) * gpu->idle_w;
    for (int i = 0; i < proc_count; i++) {
        if (procs[i].gpu != h->gpu) continue;
        u64 busy = (busy_us(&procs[i], now) - busy_us(&procs[i], gpu->since)) * gpu->busy_w;
        watt_us += gpu->mig > 0 ? busy * slices_of(gpu, procs[i].gi) / 7 : busy;
    }
    *energy = gpu->mj + watt_us / 1000;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device);
    (void)infos;
    *count = 0;
    LEAVE(NVML_SUCCESS);
}

/* What gpustat asks for as well, and takes for not supported. */
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us)
{
    ENTER_DEVICE(device);
    *percent = *period_us = 0;
    LEAVE(NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us)
{
    ENTER_DEVICE(device);
    *percent = *period_us = 0;
    LEAVE(NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    ENTER_DEVICE(device);
    if (!gpu->since || h->slot >= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    u64 percent = 0;
    for (int i = 0; i < proc_count; i++) if (is_on(&procs[i], h, now_us())) percent += procs[i].sm;
    *milliwatts = 1000 * gpu->idle_w + 10 * gpu->busy_w * percent;
    LEAVE(NVML_SUCCESS);
}

/* Of the card as a whole, as nvidia-smi shows it; not with MIG on. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    ENTER_DEVICE(device);
    if (gpu->mig > 0 || h->slot >= 0) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    unsigned percent = 0;
    for (int i = 0; i < proc_count; i++) if (is_on(&procs[i], h, now_us())) percent += procs[i].sm;
    *rates = (nvmlUtilization_t){ .gpu = percent > 100 ? 100 : percent };
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    ENTER_DEVICE(device);
    *index = h->slot < 0 ? h->gpu : h->slot;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *card)
{
    ENTER_DEVICE(device);
    if (h->slot < 0) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *card = (nvmlDevice_t)&cards[h->gpu];
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    ENTER_DEVICE(device);
    support->isSupportedDevice = gpu->gpm;
    LEAVE(NVML_SUCCESS);
}

typedef struct { u64 at, busy; } gpm_t;

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    *sample = calloc(1, sizeof(gpm_t));
    return *sample ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    free(sample);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample)
{
    ENTER_DEVICE(device);
    if (!gpu->gpm) LEAVE(NVML_ERROR_NOT_SUPPORTED);
    gpm_t *taken = (gpm_t *)sample;
    *taken = (gpm_t){ .at = now_us() };
    for (int i = 0; i < proc_count; i++)
        if (procs[i].gpu == h->gpu && procs[i].gi == (int)gi) taken->busy += busy_us(&procs[i], taken->at);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    ENTER(-1);
    if (get->version != NVML_GPM_METRICS_GET_VERSION) LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    gpm_t *before = (gpm_t *)get->sample1, *after = (gpm_t *)get->sample2;
    if (after->at <= before->at) LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < get->numMetrics; i++) {
        int known = get->metrics[i].metricId == NVML_GPM_METRIC_GRAPHICS_UTIL;
        get->metrics[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        get->metrics[i].value = 100.0 * (after->busy - before->busy) / (after->at - before->at);
    }
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER_DEVICE(device);
    *mode = gpu->acct && gpu->mig <= 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned *size)
{
    ENTER_DEVICE(device);
    *size = gpu->acct_size;
    LEAVE(NVML_SUCCESS);
}

/* The latest processes that were on the card, as many as the circular buffer holds. */
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids)
{
    ENTER_DEVICE(device);
    unsigned all = 0, given = 0;
    for (int i = 0; i < proc_count; i++)
        all += procs[i].gpu == h->gpu && procs[i].start <= now_us();
    for (int i = 0; i < proc_count; i++) {
        if (procs[i].gpu != h->gpu || procs[i].start > now_us()) continue;
        if (all-- > (unsigned)gpu->acct_size) continue;
        if (given < *count) pids[given++] = procs[i].pid;
    }
    *count = given;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, nvmlAccountingStats_t *stats)
{
    ENTER_DEVICE(device);
    for (int i = proc_count - 1; i >= 0; i--) {        /* of a pid that was used again the last one */
        proc_t *p = &procs[i];
        if (p->gpu != h->gpu || p->pid != pid || p->start > now_us()) continue;
        int runs = !p->end || p->end > now_us();
        *stats = (nvmlAccountingStats_t){ .gpuUtilization = p->sm, .maxMemoryUsage = p->mem,
            .startTime = p->start, .isRunning = runs, .time = runs ? 0 : (p->end - p->start) / 1000 };
        LEAVE(NVML_SUCCESS);
    }
    LEAVE(NVML_ERROR_NOT_FOUND);
}

/* --- events ---------------------------------------------------------------------------------- */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    *set = (nvmlEventSet_t)calloc(1, sizeof(events_t));
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    ENTER_DEVICE(device);
    if (types & nvmlEventTypeXidCriticalError) ((events_t *)set)->watched[h->gpu] = 1;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    events_t *watching = (events_t *)set;
    for (unsigned waited_ms = 0;; waited_ms += 10) {
        ENTER(-1);
        for (int i = 0; i < event_count; i++) {
            if (events[i].seq <= watching->seen || !watching->watched[events[i].gpu]) continue;
            watching->seen = events[i].seq;
            memset(data, 0, sizeof *data);
            data->device = (nvmlDevice_t)&cards[events[i].gpu];
            data->eventType = nvmlEventTypeXidCriticalError;
            data->eventData = events[i].data;
            LEAVE(NVML_SUCCESS);
        }
        pthread_mutex_unlock(&lock);
        if (waited_ms >= timeout_ms) return NVML_ERROR_TIMEOUT;
        usleep(10000);
    }
}
