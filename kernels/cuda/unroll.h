#pragma once
// How far a loop is unrolled, where all of it would take too many registers or too much code.

#if defined(__CUDACC__)
#define MOESTRO_PRAGMA(text) _Pragma(#text)
#define MOESTRO_UNROLL_BY(n) MOESTRO_PRAGMA(unroll n)
#else
#define MOESTRO_UNROLL_BY(n)
#endif
#define MOESTRO_NO_UNROLL MOESTRO_UNROLL_BY(1)
