//! Locks, strands, order and states, each rule with a guest of its own.

mod charts;
mod deadlocks;
mod guest;
mod hostile;
mod locks;
mod memory;
mod strands;
mod unseen;
