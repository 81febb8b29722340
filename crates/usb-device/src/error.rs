//! Why serving a device ended early.

use std::io;

/// Why a device stopped serving its host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket failed.
    #[error("cannot {what} the socket of the USB device: {source}")]
    Socket {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The peer broke the protocol.
    #[error("QEMU broke the usbredir protocol: {0}")]
    Protocol(String),
    /// The peer lacks something that the device needs.
    #[error("QEMU cannot use this USB device, since it lacks {0}; use QEMU 4 or newer")]
    Capability(&'static str),
    /// The peer refused the device.
    #[error("QEMU refused the USB device; remove `filter` from its usb-redir device, or give it a free port")]
    Refused,
}

impl Error {
    pub(crate) fn protocol(what: impl Into<String>) -> Error {
        Error::Protocol(what.into())
    }
}
