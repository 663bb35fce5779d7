/* Return the x86-64 level (3 or 4) whose instructions the processor and the system support; 0 below that. */
int level(void)
{
#if defined(__x86_64__)
#define HAS(feature) __builtin_cpu_supports(feature)
    if (!HAS("avx2") || !HAS("fma") || !HAS("bmi2")) return 0;
    return HAS("avx512vl") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512cd") ? 4 : 3;
#else
    return 0;
#endif
}
