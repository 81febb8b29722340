//! Ordinary drivers: the kernel is played by a most general client.
//!
//! The client calls the driver's callbacks in every order that the protocols of `knowledge/client.chart` allow, one at a
//! time. Pairs of calls that acquire and release something become small protocols. Each is verified by itself, over
//! those functions of the driver that matter for it, so that one which is not decided hides no other.

pub mod findings;
pub mod knowledge;
pub mod ops;
pub mod property;
pub mod relevant;
pub mod run;
