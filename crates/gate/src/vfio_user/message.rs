//! The messages of the vfio-user protocol, as bytes. All input is from the other side and is checked.

use std::num::NonZeroI32;

/// The size of a header in bytes.
pub const HEADER: usize = 16;
/// The longest message that is accepted, in bytes; QEMU sends none as long for what this server offers.
pub const MAX_MESSAGE: usize = 16 << 10;
/// The most bytes of one access.
pub const MAX_TRANSFER: u32 = 4096;

/// The flag of a reply in a header.
const REPLY: u32 = 1;
const NO_REPLY: u32 = 0x10;
const ERROR: u32 = 0x20;

/// The error number that answers a request which cannot be served.
pub type Refusal = NonZeroI32;

const fn refusal(errno: i32) -> Refusal {
    match NonZeroI32::new(errno) {
        Some(errno) => errno,
        None => Refusal::MIN,
    }
}

/// The request is malformed.
pub const INVALID: Refusal = refusal(libc::EINVAL);
/// This server does not support it.
pub const UNSUPPORTED: Refusal = refusal(libc::ENOTSUP);

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender; the reply has the same.
    pub id: u16,
    /// The number of the command.
    pub command: u16,
    /// Size of the whole message in bytes.
    pub size: u32,
    /// The kind of message, and whether it wants a reply.
    pub flags: u32,
}

impl Header {
    /// Parses a header; the text of an error says why it is invalid. A stream with an invalid header cannot
    /// be parsed any further.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, String> {
        let mut fields = Fields(bytes);
        let header = Header {
            id: fields.u16().unwrap_or(0),
            command: fields.u16().unwrap_or(0),
            size: fields.u32().unwrap_or(0),
            flags: fields.u32().unwrap_or(0),
        };
        match header.size as usize {
            size @ (..HEADER | MAX_MESSAGE..) => Err(format!("a message of {size} bytes")),
            _ if header.flags & 0xf != 0 => Err(format!("a message with flags {:#x}", header.flags)),
            _ => Ok(header),
        }
    }

    /// The number of bytes behind the header.
    pub fn body(&self) -> usize {
        (self.size as usize).saturating_sub(HEADER)
    }

    /// False where the sender does not wait for a reply.
    pub fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// The reply with these bytes behind the header.
    pub fn reply(&self, body: &[u8]) -> Vec<u8> {
        self.answer(REPLY, 0, body)
    }

    /// The reply that refuses the request.
    pub fn refuse(&self, why: Refusal) -> Vec<u8> {
        self.answer(REPLY | ERROR, why.get(), &[])
    }

    fn answer(&self, flags: u32, error: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.command.to_le_bytes());
        bytes.extend(((HEADER + body.len()) as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(error.to_le_bytes());
        bytes.extend(body);
        bytes
    }
}

/// A request of the driver VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The version of the protocol that the sender speaks.
    Version {
        /// The number of incompatible changes.
        major: u16,
        /// The number of compatible changes.
        minor: u16,
    },
    /// The guest has memory at this address; a descriptor accompanies the message where the memory is a file.
    DmaMap {
        /// The offset in the file.
        offset: u64,
        /// The bus address.
        address: u64,
        /// The size in bytes.
        size: u64,
    },
    /// The guest has no memory at this address any more.
    DmaUnmap {
        /// The bus address.
        address: u64,
        /// The size in bytes.
        size: u64,
        /// True for all memory.
        all: bool,
    },
    /// Asks how many regions and interrupts there are.
    DeviceInfo,
    /// Asks for the description of a region.
    RegionInfo {
        /// The number of the region.
        index: u32,
    },
    /// Asks for the description of a kind of interrupt.
    IrqInfo {
        /// The number of the kind.
        index: u32,
    },
    /// Configures or triggers interrupts.
    SetIrqs(SetIrqs),
    /// Reads from a region.
    Read {
        /// The offset in the region, in bytes.
        offset: u64,
        /// The number of the region.
        region: u32,
        /// The number of bytes.
        count: u32,
    },
    /// Writes to a region.
    Write {
        /// The offset in the region, in bytes.
        offset: u64,
        /// The number of the region.
        region: u32,
        /// The bytes to write.
        data: &'a [u8],
    },
    /// Resets the device.
    Reset,
}

/// The contents of [`Request::SetIrqs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    /// The kind of interrupt.
    pub index: u32,
    /// The first of the interrupts.
    pub start: u32,
    /// The number of interrupts.
    pub count: u32,
    /// The action on them.
    pub action: IrqAction,
}

/// An action on interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Signals use the counters that accompany the message; without counters they are disconnected.
    Connect,
    /// Signals are disconnected.
    Disconnect,
    /// The interrupts are signaled, as a test.
    Trigger,
    /// The interrupts are masked.
    Mask,
    /// The interrupts are unmasked.
    Unmask,
}

impl<'a> Request<'a> {
    /// Parses the body of a message.
    pub fn parse(command: u16, body: &'a [u8]) -> Result<Request<'a>, Refusal> {
        let mut fields = Fields(body);
        Request::fields(command, &mut fields).ok_or(INVALID)?
    }

    /// Parses the fields of a command; `None` where the body is too short.
    fn fields(command: u16, fields: &mut Fields<'a>) -> Option<Result<Request<'a>, Refusal>> {
        Some(Ok(match command {
            1 => Request::Version { major: fields.u16()?, minor: fields.u16()? },
            2 => {
                let (_size, _flags) = (fields.u32()?, fields.u32()?);
                let (offset, address, size) = (fields.u64()?, fields.u64()?, fields.u64()?);
                if address.checked_add(size).is_none() || offset.checked_add(size).is_none() || size == 0 {
                    return Some(Err(INVALID));
                }
                Request::DmaMap { offset, address, size }
            }
            3 => {
                let (_size, flags) = (fields.u32()?, fields.u32()?);
                let (address, size) = (fields.u64()?, fields.u64()?);
                Request::DmaUnmap { address, size, all: flags & 2 != 0 }
            }
            4 => Request::DeviceInfo,
            5 => {
                let (_size, _flags) = (fields.u32()?, fields.u32()?);
                Request::RegionInfo { index: fields.u32()? }
            }
            7 => {
                let (_size, _flags) = (fields.u32()?, fields.u32()?);
                Request::IrqInfo { index: fields.u32()? }
            }
            8 => {
                let (_size, flags) = (fields.u32()?, fields.u32()?);
                let (index, start, count) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let Some(action) = IrqAction::of(flags, count) else { return Some(Err(UNSUPPORTED)) };
                if start.checked_add(count).is_none() {
                    return Some(Err(INVALID));
                }
                Request::SetIrqs(SetIrqs { index, start, count, action })
            }
            9 => {
                let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
                if count == 0 || count > MAX_TRANSFER || offset.checked_add(count.into()).is_none() {
                    return Some(Err(INVALID));
                }
                Request::Read { offset, region, count }
            }
            10 => {
                let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
                let data = fields.0.get(..count as usize)?;
                if count == 0 || count > MAX_TRANSFER || offset.checked_add(count.into()).is_none() {
                    return Some(Err(INVALID));
                }
                Request::Write { offset, region, data }
            }
            13 => Request::Reset,
            _ => return Some(Err(UNSUPPORTED)),
        }))
    }
}

impl IrqAction {
    fn of(flags: u32, count: u32) -> Option<IrqAction> {
        const NONE: u32 = 1;
        const COUNTERS: u32 = 4;
        const MASK: u32 = 8;
        const UNMASK: u32 = 16;
        const TRIGGER: u32 = 32;
        Some(match flags {
            _ if flags == NONE | TRIGGER && count == 0 => IrqAction::Disconnect,
            _ if flags == NONE | TRIGGER => IrqAction::Trigger,
            _ if flags == COUNTERS | TRIGGER => IrqAction::Connect,
            _ if flags == NONE | MASK => IrqAction::Mask,
            _ if flags == NONE | UNMASK => IrqAction::Unmask,
            _ => return None,
        })
    }
}

/// A reader of little-endian numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// The little-endian bytes of these numbers, for a reply.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The body of a reply to an access: its address, and the bytes that were read.
pub fn access_body(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + data.len());
    body.extend(offset.to_le_bytes());
    body.extend(region.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend(data);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked() {
        let bytes = |size: u32, flags: u32| {
            let mut bytes = [0; HEADER];
            bytes[..2].copy_from_slice(&7u16.to_le_bytes());
            bytes[2..4].copy_from_slice(&13u16.to_le_bytes());
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            bytes[8..12].copy_from_slice(&flags.to_le_bytes());
            bytes
        };
        let header = Header::parse(&bytes(16, 0)).unwrap();
        assert_eq!((header.id, header.command, header.body()), (7, 13, 0));
        assert!(header.wants_reply());
        assert!(!Header::parse(&bytes(16, 0x10)).unwrap().wants_reply());
        for (size, flags) in [(15, 0), (0, 0), (u32::MAX, 0), (MAX_MESSAGE as u32, 0), (16, 1)] {
            assert!(Header::parse(&bytes(size, flags)).is_err(), "{size} {flags}");
        }
        assert_eq!(header.reply(&[9])[4..], [17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(header.refuse(INVALID)[8..], [0x21, 0, 0, 0, 22, 0, 0, 0]);
    }

    #[test]
    fn requests_are_checked() {
        let read = |offset: u64, count: u32| {
            let mut body = offset.to_le_bytes().to_vec();
            body.extend(words(&[2, count]));
            Request::parse(9, &body).map(|_| ())
        };
        assert_eq!(read(0x10, 4), Ok(()));
        assert_eq!(read(0x10, 0), Err(INVALID));
        assert_eq!(read(0x10, MAX_TRANSFER + 1), Err(INVALID));
        assert_eq!(read(u64::MAX, 4), Err(INVALID));
        let mut body = 8u64.to_le_bytes().to_vec();
        body.extend(words(&[1, 4]));
        assert_eq!(Request::parse(10, &body), Err(INVALID));
        body.extend([1, 2, 3, 4]);
        assert_eq!(
            Request::parse(10, &body),
            Ok(Request::Write { offset: 8, region: 1, data: &[1, 2, 3, 4] })
        );
        assert_eq!(Request::parse(11, &body), Err(UNSUPPORTED));
        assert_eq!(Request::parse(0xffff, &[]), Err(UNSUPPORTED));
    }

    #[test]
    fn interrupts_follow_requests() {
        let parse = |flags: u32, start: u32, count: u32| match Request::parse(
            8,
            &words(&[20, flags, 2, start, count]),
        ) {
            Ok(Request::SetIrqs(set)) => Ok(set.action),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why),
        };
        assert_eq!(parse(0x24, 0, 3), Ok(IrqAction::Connect));
        assert_eq!(parse(0x21, 0, 0), Ok(IrqAction::Disconnect));
        assert_eq!(parse(0x21, 0, 1), Ok(IrqAction::Trigger));
        assert_eq!(parse(0x11, 0, 1), Ok(IrqAction::Unmask));
        assert_eq!(parse(0x09, 0, 1), Ok(IrqAction::Mask));
        assert_eq!(parse(0x14, 0, 1), Err(UNSUPPORTED));
        assert_eq!(parse(0x24, u32::MAX, 1), Err(INVALID));
    }
}
