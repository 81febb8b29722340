//! The machine as the log shows it: contexts with their call stacks, modules, objects, code.

mod blocks;
mod context;
mod modules;
mod objects;
mod rooms;
mod state;
mod world;

pub use blocks::{BlockInfo, Blocks, End};
pub use context::{Activation, Context, Out, Version, length};
pub use modules::{Gone, MAX_REGION, Module, Modules, Other};
pub use objects::{LARGEST_SLAB, Object, ObjectId, Objects, kmalloc_slot};
pub use rooms::rooms;
pub use state::{State, describe};
pub(crate) use world::find;
pub use world::{Constant, LineLookup, ModuleMap, Pointed, Range, Region, World};

/// End of the half of the address space that belongs to user space.
pub const USER_END: u64 = 1 << 47;
