/* For a compiler of the host. */
typedef struct { int counter; } atomic_t;
