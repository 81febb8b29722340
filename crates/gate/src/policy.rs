//! The interface between the gate and the policy that decides.

use serde::{Deserialize, Serialize};

/// The part of the device that is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// A base address register's memory or ports, 0 to 5.
    Bar(u8),
    /// PCI configuration space.
    Config,
}

/// One access of the guest to its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The part of the device that is accessed.
    pub space: Space,
    /// Bytes from the beginning of the space.
    pub offset: u64,
    /// Size in bytes: 1, 2, 4 or 8; more only for reads of configuration space by the driver VM itself.
    pub size: u32,
    /// True for a write, false for a read.
    pub write: bool,
    /// The value that is written; 0 for a read.
    pub value: u64,
}

/// The decision about an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The access reaches the device.
    Pass,
    /// The access does not reach the device: a write has no effect, a read returns all ones.
    Drop,
}

/// Decides about accesses.
///
/// The server holds an access for as long as [`Gate::admit`] takes, up to its own limit, after which it closes. A
/// policy that panics closes the gate as well.
pub trait Gate: Send + Sync + 'static {
    /// Decides about an access. It may wait, and is called by several threads at once: one for each access that is held.
    fn admit(&self, access: &Access) -> Verdict;

    /// Decides at once; `None` means that [`Gate::admit`] must decide on another thread. It must not wait,
    /// for all other accesses and interrupts would wait with it.
    fn admit_now(&self, access: &Access) -> Option<Verdict> {
        let _ = access;
        None
    }

    /// Why nothing may pass any more; `None` while the gate may stay open. The server calls it a hundred
    /// times a second and after each event; it must not wait.
    fn closed(&self) -> Option<String> {
        None
    }

    /// The policy's report for the program that started the gate, sent with [`crate::process::State`]; it
    /// must not wait.
    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// A policy that passes everything: the gate only counts and can be closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    fn admit(&self, _: &Access) -> Verdict {
        Verdict::Pass
    }

    fn admit_now(&self, _: &Access) -> Option<Verdict> {
        Some(Verdict::Pass)
    }
}
