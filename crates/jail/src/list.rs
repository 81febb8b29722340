//! What a jailed process may reach.

use crate::user::Role;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a process may reach; all else is refused. The process also reads its own folder in `/proc`, unless another jailed
/// process starts it.
///
/// A path that does not exist when the process starts is left out: the process finds nothing there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jail {
    /// Files and folders that are read and executed, with all below them.
    pub(crate) reads: Vec<PathBuf>,
    /// Files and folders that are also written, with all below them.
    pub(crate) writes: Vec<PathBuf>,
    /// TCP ports of any machine that are connected to.
    pub(crate) connects: Vec<u16>,
    /// TCP ports of this machine that are listened on.
    pub(crate) binds: Vec<u16>,
    /// True where Unix sockets are opened; those that are inherited need no permission.
    pub(crate) unix_sockets: bool,
    /// True where UDP packets are sent to and received from any port of any machine.
    pub(crate) udp: bool,
    /// The most address space in bytes; `None` where it is not limited.
    pub(crate) memory: Option<u64>,
    /// The process of a run that the jail is for; `None` where another jailed process starts it.
    pub(crate) role: Option<Role>,
}

impl Jail {
    /// A jail from which nothing is reached.
    pub fn new() -> Jail {
        Jail::default()
    }

    /// Also permits to read and execute a file, or all that a folder holds.
    pub fn reads(mut self, path: impl AsRef<Path>) -> Jail {
        self.reads.push(path.as_ref().to_path_buf());
        self
    }

    /// Also permits to read and write a file, or to read, write, create and remove what a folder holds.
    pub fn writes(mut self, path: impl AsRef<Path>) -> Jail {
        self.writes.push(path.as_ref().to_path_buf());
        self
    }

    /// Also permits TCP connections to a port.
    pub fn connects(mut self, port: u16) -> Jail {
        self.connects.push(port);
        self
    }

    /// Also permits to listen on a TCP port.
    pub fn binds(mut self, port: u16) -> Jail {
        self.binds.push(port);
        self
    }

    /// Also permits to open Unix sockets, at any path that the user may open. Those of other services are among them,
    /// and many of those do what root asks.
    pub fn unix_sockets(mut self) -> Jail {
        self.unix_sockets = true;
        self
    }

    /// Also permits to send UDP packets to any machine, and to receive them.
    pub fn udp(mut self) -> Jail {
        self.udp = true;
        self
    }

    /// Limits the address space of each process to so many bytes.
    pub fn memory(mut self, bytes: u64) -> Jail {
        self.memory = Some(bytes);
        self
    }

    /// Raises the limit of the address space, where there is one.
    pub fn more_memory(mut self, bytes: u64) -> Jail {
        self.memory = self.memory.map(|limit| limit.saturating_add(bytes));
        self
    }

    /// Keeps the process apart from the rest of the system, as far as this machine permits that. It gets namespaces, a root
    /// of its own with the files that are listed, and a user of its own. The caller is not jailed itself.
    pub fn apart(mut self, role: Role) -> Jail {
        self.role = Some(role);
        self
    }

    /// Permits what either of both permits. Of two limits, the larger one holds.
    pub fn and(mut self, other: &Jail) -> Jail {
        self.reads.extend_from_slice(&other.reads);
        self.writes.extend_from_slice(&other.writes);
        self.connects.extend_from_slice(&other.connects);
        self.binds.extend_from_slice(&other.binds);
        self.unix_sockets |= other.unix_sockets;
        self.udp |= other.udp;
        self.memory = self.memory.max(other.memory);
        self.role = self.role.or(other.role);
        self
    }

    /// All paths that the process may reach.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.reads.iter().chain(&self.writes).map(PathBuf::as_path)
    }
}
