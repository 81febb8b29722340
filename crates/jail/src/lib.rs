//! Jails for the processes of a run: what they may reach is listed, and everything else is refused.
//!
//! A [`Jail`] is a list of paths and ports. The kernel enforces it by Landlock, and a process that the supervisor starts
//! also has a root of its own, in which nothing else is ([`Jail::apart`]). Every jailed process loses its capabilities, has
//! limits, and may not use system calls that no program of a run needs. All that holds for its children, too.
//!
//! **Knows**: capabilities, namespaces, users, limits, Landlock, seccomp, how a child process enters them, and how it gets
//! open files. **Must not know**: what the programs in it are, and what they do.

pub mod descriptors;
pub mod filter;

mod apart;
mod calls;
mod enter;
mod here;
mod landlock;
mod limits;
mod list;
mod reach;
mod root;
mod tree;
mod user;

pub use apart::{Apart, apart};
pub use enter::{Error, enter, spawn};
pub use here::confine;
pub use landlock::{Landlock, available};
pub use limits::limit;
pub use list::Jail;
pub use reach::out_of_reach;
pub use user::{Role, become_user, is_alone, stay_alone};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_apart;
