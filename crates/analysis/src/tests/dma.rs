//! DMACheck: each kind of fault with its correct twin.

mod accesses;
mod calls;
mod mappings;
mod run;
mod uninit;
