//! Messages of the usbredir protocol: how they lie in a stream, and what is in them.

mod frame;
mod parse;
mod write;

pub(crate) use frame::Frames;
pub(crate) use parse::{Control, Message, parse};
pub(crate) use write::Writer;

/// Types of messages.
pub(crate) mod kind {
    pub const HELLO: u32 = 0;
    pub const DEVICE_CONNECT: u32 = 1;
    pub const RESET: u32 = 3;
    pub const INTERFACE_INFO: u32 = 4;
    pub const EP_INFO: u32 = 5;
    pub const SET_CONFIGURATION: u32 = 6;
    pub const GET_CONFIGURATION: u32 = 7;
    pub const CONFIGURATION_STATUS: u32 = 8;
    pub const SET_ALT_SETTING: u32 = 9;
    pub const GET_ALT_SETTING: u32 = 10;
    pub const ALT_SETTING_STATUS: u32 = 11;
    pub const START_ISO_STREAM: u32 = 12;
    pub const STOP_ISO_STREAM: u32 = 13;
    pub const ISO_STREAM_STATUS: u32 = 14;
    pub const START_INTERRUPT_RECEIVING: u32 = 15;
    pub const STOP_INTERRUPT_RECEIVING: u32 = 16;
    pub const INTERRUPT_RECEIVING_STATUS: u32 = 17;
    pub const ALLOC_BULK_STREAMS: u32 = 18;
    pub const FREE_BULK_STREAMS: u32 = 19;
    pub const BULK_STREAMS_STATUS: u32 = 20;
    pub const CANCEL_DATA_PACKET: u32 = 21;
    pub const FILTER_REJECT: u32 = 22;
    pub const FILTER_FILTER: u32 = 23;
    pub const START_BULK_RECEIVING: u32 = 25;
    pub const STOP_BULK_RECEIVING: u32 = 26;
    pub const BULK_RECEIVING_STATUS: u32 = 27;
    pub const CONTROL_PACKET: u32 = 100;
    pub const BULK_PACKET: u32 = 101;
    pub const ISO_PACKET: u32 = 102;
    pub const INTERRUPT_PACKET: u32 = 103;
}

/// Bits of capabilities.
pub(crate) mod capability {
    pub const CONNECT_DEVICE_VERSION: u32 = 1 << 1;
    pub const FILTER: u32 = 1 << 2;
    pub const EP_INFO_MAX_PACKET_SIZE: u32 = 1 << 4;
    pub const IDS_64_BITS: u32 = 1 << 5;
    pub const BULK_LENGTH_32_BITS: u32 = 1 << 6;

    /// What this device can do, and its peer has to.
    pub const OURS: u32 =
        CONNECT_DEVICE_VERSION | FILTER | EP_INFO_MAX_PACKET_SIZE | IDS_64_BITS | BULK_LENGTH_32_BITS;
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Success = 0,
    Cancelled = 1,
    Invalid = 2,
    Failed = 3,
    Stall = 4,
}

/// The length of the version text in the first message.
pub(crate) const VERSION_LENGTH: usize = 64;

/// Endpoints of each direction, with endpoint 0.
pub(crate) const ENDPOINTS: usize = 32;

#[cfg(test)]
mod tests;
