#include "base/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned features;
static char feature_names[64], name[96];
static uint32_t physical_cores;

static const struct {
    unsigned feature;
    const char *name;
} known_features[] = {
    {CPU_NEON_DOTPROD, "dotprod"},
    {CPU_NEON_I8MM, "i8mm"},
    {CPU_NEON_FP16, "fp16"},
    {CPU_NEON_FHM, "fhm"},
    {CPU_AVX2, "avx2"},
    {CPU_AVX_VNNI, "avx-vnni"},
    {CPU_AVX512_VNNI, "avx512-vnni"},
    {CPU_AMX_INT8, "amx-int8"},
};

#if defined(__APPLE__)
static bool sysctl_flag(const char *key)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(key, &value, &size, NULL, 0) == 0 && value;
}
#endif

#if defined(__x86_64__)
/* Linux enlarges the state of a process for tiles only when the process asks; other systems are not known to.
 */
static bool amx_state_granted(void)
{
#if defined(__linux__)
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return false;
#endif
}

/* Bits of Intel's manual: the processor has an instruction set, and the system saves its registers.
 * __builtin_cpu_supports would need a runtime library that zig does not have. */
static unsigned detect_x86(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, F16C = 1 << 29 };             /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17 };         /* leaf 7, ebx */
    const unsigned avx512bw = 1u << 30, avx512vl = 1u << 31;               /* leaf 7, ebx */
    enum { AVX512VNNI = 1 << 11 };                                         /* leaf 7, ecx */
    enum { AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };                       /* leaf 7, edx */
    enum { AVX_VNNI = 1 << 4 };                                            /* leaf 7.1, eax */
    enum { SAVES_AVX = 0x06, SAVES_AVX512 = 0xe6, SAVES_TILES = 0x60000 }; /* XCR0 */
    unsigned a, b, c, d, basic;
    if (!__get_cpuid(1, &a, &b, &basic, &d) || !(basic & OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    unsigned saved, high;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    unsigned avx512 = AVX512F | AVX512DQ | avx512bw | avx512vl;
    if ((saved & SAVES_AVX) != SAVES_AVX || !(basic & FMA) || !(basic & F16C) || !(b & AVX2))
        return 0;
    unsigned found = CPU_AVX2, leaves = a, unused[3];
    if (leaves > 0 && __get_cpuid_count(7, 1, &a, &unused[0], &unused[1], &unused[2]) && (a & AVX_VNNI))
        found |= CPU_AVX_VNNI;
    if ((saved & SAVES_AVX512) != SAVES_AVX512 || (b & avx512) != avx512 || !(c & AVX512VNNI))
        return found;
    if ((saved & SAVES_TILES) != SAVES_TILES || !(d & AMX_TILE) || !(d & AMX_INT8) || !amx_state_granted())
        return found | CPU_AVX512_VNNI;
    return found | CPU_AVX512_VNNI | CPU_AMX_INT8;
}
#endif

static unsigned detect_features(void)
{
    unsigned found = 0;
#if defined(__aarch64__) && defined(__linux__)
    unsigned long capabilities = getauxval(AT_HWCAP);
    found |= capabilities & HWCAP_ASIMDDP ? CPU_NEON_DOTPROD : 0;
    found |= capabilities & HWCAP_ASIMDHP ? CPU_NEON_FP16 : 0;
    found |= capabilities & HWCAP_ASIMDFHM ? CPU_NEON_FHM : 0;
    found |= getauxval(AT_HWCAP2) & HWCAP2_I8MM ? CPU_NEON_I8MM : 0;
#elif defined(__aarch64__) && defined(__APPLE__)
    found |= sysctl_flag("hw.optional.arm.FEAT_DotProd") ? CPU_NEON_DOTPROD : 0;
    found |= sysctl_flag("hw.optional.arm.FEAT_FP16") ? CPU_NEON_FP16 : 0;
    found |= sysctl_flag("hw.optional.arm.FEAT_FHM") ? CPU_NEON_FHM : 0;
    found |= sysctl_flag("hw.optional.arm.FEAT_I8MM") ? CPU_NEON_I8MM : 0;
#elif defined(__x86_64__)
    found = detect_x86();
#endif
    return found;
}

#if defined(__linux__)
/* Linux reports numbers, not names, for Arm cores; these are common in servers and boards. */
static const char *arm_core_name(unsigned implementer, unsigned part)
{
    static const struct {
        unsigned implementer, part;
        const char *name;
    } cores[] = {
        {0x41, 0xd03, "Cortex-A53"},
        {0x41, 0xd05, "Cortex-A55"},
        {0x41, 0xd08, "Cortex-A72"},
        {0x41, 0xd0b, "Cortex-A76"},
        {0x41, 0xd0c, "Neoverse-N1"},
        {0x41, 0xd40, "Neoverse-V1"},
        {0x41, 0xd41, "Cortex-A78"},
        {0x41, 0xd46, "Cortex-A510"},
        {0x41, 0xd47, "Cortex-A710"},
        {0x41, 0xd49, "Neoverse-N2"},
        {0x41, 0xd4f, "Neoverse-V2"},
        {0x41, 0xd83, "Neoverse-V3AE"},
        {0x41, 0xd84, "Neoverse-V3"},
        {0x41, 0xd8e, "Neoverse-N3"},
        {0xc0, 0xac3, "Ampere-1"},
        {0xc0, 0xac4, "Ampere-1A"},
    };
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++) {
        if (cores[i].implementer == implementer && cores[i].part == part)
            return cores[i].name;
    }
    return NULL;
}

static void read_name(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return;
    char line[512], text[sizeof name];
    unsigned implementer = 0, part = 0;
    while (fgets(line, sizeof line, file) && !name[0]) {
        if (sscanf(line, "model name : %95[^\n]", text) == 1) {
            snprintf(name, sizeof name, "%s", text);
        } else if (strncmp(line, "CPU implementer", 15) == 0 && strchr(line, ':')) {
            implementer = (unsigned)strtoul(strchr(line, ':') + 1, NULL, 16);
        } else if (strncmp(line, "CPU part", 8) == 0 && strchr(line, ':')) {
            part = (unsigned)strtoul(strchr(line, ':') + 1, NULL, 16);
            const char *core = arm_core_name(implementer, part);
            if (core)
                snprintf(name, sizeof name, "%s", core);
            else
                snprintf(name, sizeof name, "Arm core %02x-%03x", implementer, part);
        }
    }
    fclose(file);
}

/* A core with two hardware threads counts once: by its lowest thread that the process may use. */
static uint32_t count_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 0;
    uint32_t cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        FILE *file = fopen(path, "r");
        int first = cpu;
        if (file) {
            char line[64] = "";
            long sibling = fgets(line, sizeof line, file) ? strtol(line, NULL, 10) : cpu;
            if (sibling >= 0 && sibling < cpu && CPU_ISSET(sibling, &allowed))
                first = (int)sibling;
            fclose(file);
        }
        cores += first == cpu;
    }
    return cores;
}
#elif defined(__APPLE__)
static void read_name(void)
{
    size_t size = sizeof name;
    if (sysctlbyname("machdep.cpu.brand_string", name, &size, NULL, 0) != 0)
        name[0] = 0;
}

static uint32_t count_cores(void)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname("hw.perflevel0.physicalcpu", &value, &size, NULL, 0) == 0 && value > 0
               ? (uint32_t)value
               : 0;
}
#else
static void read_name(void) {}

static uint32_t count_cores(void)
{
    return 0;
}
#endif

static void detect(void)
{
    features = detect_features();
    for (size_t i = 0; i < sizeof known_features / sizeof *known_features; i++) {
        if (features & known_features[i].feature) {
            size_t used = strlen(feature_names);
            snprintf(feature_names + used, sizeof feature_names - used, "%s%s", used ? " " : "",
                known_features[i].name);
        }
    }
    read_name();
    if (!name[0])
        snprintf(name, sizeof name, "CPU");
    physical_cores = count_cores();
    if (physical_cores == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        physical_cores = online > 0 ? (uint32_t)online : 1;
    }
}

unsigned cpu_features(void)
{
    pthread_once(&once, detect);
    return features;
}

const char *cpu_feature_names(void)
{
    pthread_once(&once, detect);
    return feature_names;
}

const char *cpu_name(void)
{
    pthread_once(&once, detect);
    return name;
}

uint32_t cpu_physical_cores(void)
{
    pthread_once(&once, detect);
    return physical_cores;
}

uint64_t cpu_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}
