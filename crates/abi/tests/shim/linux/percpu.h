/* For a compiler of the host. */
#define DECLARE_PER_CPU(type, name) extern type name
