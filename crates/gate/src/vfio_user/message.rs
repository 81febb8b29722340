//! The messages of the vfio-user protocol, as bytes. Everything here comes from the other side and is checked.

use std::num::NonZeroI32;

/// Bytes of a header.
pub const HEADER: usize = 16;
/// The longest message that is taken: more than QEMU sends for anything that this server offers.
pub const MAX_MESSAGE: usize = 16 << 10;
/// The most that one access may move.
pub const MAX_TRANSFER: u32 = 4096;

/// The kind of reply, in a header's flags.
const REPLY: u32 = 1;
const NO_REPLY: u32 = 0x10;
const ERROR: u32 = 0x20;

/// What a request that cannot be served is answered with.
pub type Refusal = NonZeroI32;

const fn refusal(errno: i32) -> Refusal {
    match NonZeroI32::new(errno) {
        Some(errno) => errno,
        None => Refusal::MIN,
    }
}

/// The request is malformed.
pub const INVALID: Refusal = refusal(libc::EINVAL);
/// This server does not do it.
pub const UNSUPPORTED: Refusal = refusal(libc::ENOTSUP);

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender; the reply has the same.
    pub id: u16,
    /// What is asked.
    pub command: u16,
    /// Bytes of the whole message.
    pub size: u32,
    /// Kind of message.
    pub flags: u32,
}

impl Header {
    /// Reads one; the text says why it is none. A stream with such a header cannot be followed any further.
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

    /// The bytes that follow it.
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

    /// The reply that says no.
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

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Which version of the protocol is spoken.
    Version {
        /// Incompatible changes.
        major: u16,
        /// Compatible ones.
        minor: u16,
    },
    /// The guest has memory there; a descriptor comes with it where the memory is a file.
    DmaMap {
        /// Where in the file.
        offset: u64,
        /// Where for the device.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// The guest has no memory there any more.
    DmaUnmap {
        /// Where for the device.
        address: u64,
        /// Bytes.
        size: u64,
        /// All of it.
        all: bool,
    },
    /// How many regions and interrupts there are.
    DeviceInfo,
    /// What a region is.
    RegionInfo {
        /// Which.
        index: u32,
    },
    /// What a kind of interrupt is.
    IrqInfo {
        /// Which.
        index: u32,
    },
    /// Where interrupts go.
    SetIrqs(SetIrqs),
    /// Reads from a region.
    Read {
        /// Bytes from its beginning.
        offset: u64,
        /// Which.
        region: u32,
        /// Bytes.
        count: u32,
    },
    /// Writes to a region.
    Write {
        /// Bytes from its beginning.
        offset: u64,
        /// Which.
        region: u32,
        /// What.
        data: &'a [u8],
    },
    /// Resets the device.
    Reset,
}

/// What [`Request::SetIrqs`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    /// Which kind of interrupt.
    pub index: u32,
    /// The first of them.
    pub start: u32,
    /// How many.
    pub count: u32,
    /// What shall be done.
    pub action: IrqAction,
}

/// What shall be done with interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// They go to the counters that came with the message; to nobody where none came.
    Connect,
    /// They go nowhere any more.
    Disconnect,
    /// They are signaled, to try them.
    Trigger,
    /// They wait.
    Mask,
    /// They wait no longer.
    Unmask,
}

impl<'a> Request<'a> {
    /// Reads the body of a message.
    pub fn parse(command: u16, body: &'a [u8]) -> Result<Request<'a>, Refusal> {
        let mut fields = Fields(body);
        Request::fields(command, &mut fields).ok_or(INVALID)?
    }

    /// `None` where the body is too short.
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

/// Little-endian numbers, one after the other.
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

/// Puts numbers behind each other for a reply.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The body of a reply to an access: where it was, and what was read.
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
    fn interrupts_are_told_what_to_do() {
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
