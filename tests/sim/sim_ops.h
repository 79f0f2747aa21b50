/* What compiled device code and the simulator share: the table of calls that sim_device.h is made
 * of, filled in when a module is loaded, and what a simulated thread knows of itself. */
#ifndef REEL_TESTS_SIM_OPS_H
#define REEL_TESTS_SIM_OPS_H

/* Of the running thread. */
struct sim_self {
    unsigned thread, block, n_threads, n_blocks;
    unsigned char *shared;
    unsigned shared_bytes;
};

enum { SIM_SHARED_BASE = 1024 }; /* shared address of the block's first byte, so that 0 is none */

enum sim_access {
    SIM_WORD,   /* relaxed, GPU: exchange words */
    SIM_PLAIN,  /* the same for data that fences order */
    SIM_MAPPED, /* relaxed, system: the host on the other side */
    SIM_PEER,   /* relaxed, system: another GPU's memory */
    SIM_CONST   /* non-coherent: memory that no launch writes */
};

enum sim_fence {
    SIM_FENCE_GPU,
    SIM_FENCE_COPIES,
    SIM_FENCE_SLOT,
    SIM_FENCE_SYSTEM,
    SIM_FENCE_MBAR_INIT
};

struct sim_ops {
    const struct sim_self *self;

    /* inside a warp: all 32 lanes meet */
    void (*warp_sync)(void);
    unsigned (*shuffle)(unsigned value, int lane);
    unsigned (*ballot)(int yes);
    void (*mma)(float d[4], const unsigned a[4], unsigned b0, unsigned b1);

    /* inside a block; id 0 is the barrier of the whole block */
    void (*barrier)(int id, int threads, int wait);
    void (*mbar_init)(unsigned bar, int count);
    void (*mbar_arrive)(unsigned bar, int answered); /* answered: this warp's loads of before */
    int (*mbar_test)(unsigned bar, unsigned parity);
    unsigned (*shared_load)(unsigned address);
    void (*shared_store)(unsigned address, unsigned value);

    /* memory; `copy` is G_COPY */
    void (*fill)(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy);
    void (*fill_more)(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy);
    unsigned long long (*load)(const volatile void *p, int bytes, int access);
    void (*store)(volatile void *p, unsigned long long value, int bytes, int access);
    unsigned (*claim)(volatile void *p, unsigned value);
    void (*add)(volatile void *p, unsigned value);
    void (*fence)(int kind);
    void (*previous_over)(void);

    unsigned (*clock)(void);
    unsigned long long (*time_ns)(void);
    void (*sleep)(unsigned ns);
    void (*fail)(const char *what);
};

#endif
