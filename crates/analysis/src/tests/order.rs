//! Locks, strands, order and states; each rule has a guest of its own.

mod charts;
mod deadlocks;
mod frozen;
mod guest;
mod hostile;
mod kernel;
mod lent;
mod locks;
mod memory;
mod probe;
mod strands;
mod unseen;
