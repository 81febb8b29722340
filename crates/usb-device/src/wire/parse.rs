//! What is in messages of the peer, checked.

use super::frame::Frame;
use super::{VERSION_LENGTH, kind};
use crate::error::Error;

/// A control request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub endpoint: u8,
    pub request: u8,
    /// Direction, kind and recipient (`bmRequestType`).
    pub kind: u8,
    pub value: u16,
    pub index: u16,
    pub length: u16,
}

/// A message of the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The first one, with the low 32 capabilities.
    Hello(u32),
    Reset,
    SetConfiguration(u8),
    GetConfiguration,
    SetSetting {
        interface: u8,
        setting: u8,
    },
    GetSetting(u8),
    StartIso(u8),
    StopIso(u8),
    StartInterrupt(u8),
    StopInterrupt(u8),
    /// Streams of bulk endpoints are wanted or no longer so: the endpoints' bits, the number of streams.
    Streams(u32, u32),
    Cancel,
    Rejected,
    Filter,
    /// Data of a bulk endpoint is wanted without requests, or no longer so: stream and endpoint.
    BulkReceiving(u32, u8),
    Control(Control, Vec<u8>),
    BulkIn {
        endpoint: u8,
        stream: u32,
        length: usize,
    },
    BulkOut {
        endpoint: u8,
        stream: u32,
        data: Vec<u8>,
    },
    IsoOut {
        endpoint: u8,
        data: Vec<u8>,
    },
    InterruptOut {
        endpoint: u8,
        data: Vec<u8>,
    },
}

/// The direction of an address or a request: to the host.
const IN: u8 = 0x80;

/// A body that is read from its start.
struct Body<'a> {
    kind: u32,
    rest: &'a [u8],
}

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| {
            Error::protocol(format!("a message of type {} ends within its header", self.kind))
        })?;
        self.rest = rest;
        Ok(*first)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take::<1>()?[0])
    }

    fn half(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn word(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    /// The address of an endpoint.
    fn endpoint(&mut self) -> Result<u8, Error> {
        let address = self.byte()?;
        if address & 0x70 != 0 {
            return Err(Error::protocol(format!("{address:#04x} is no endpoint (type {})", self.kind)));
        }
        Ok(address)
    }

    /// The endpoint of a message that makes sense for endpoints that give data to the host alone.
    fn input(&mut self) -> Result<u8, Error> {
        let address = self.endpoint()?;
        if address & IN == 0 {
            return Err(Error::protocol(format!(
                "a message of type {} names {address:#04x}, which gives no data",
                self.kind
            )));
        }
        Ok(address)
    }

    /// The data after the header, which has to have the length that the header says.
    fn data(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        if self.rest.len() != length {
            return Err(Error::protocol(format!(
                "a message of type {} has {} bytes of data, and its header says {length}",
                self.kind,
                self.rest.len()
            )));
        }
        Ok(std::mem::take(&mut self.rest).to_vec())
    }
}

/// Reads one message.
pub(crate) fn parse(frame: &Frame) -> Result<Message, Error> {
    let mut body = Body { kind: frame.kind, rest: &frame.body };
    let message = match frame.kind {
        kind::HELLO => {
            body.take::<VERSION_LENGTH>()?;
            let low = if body.rest.is_empty() { 0 } else { body.word()? };
            // Later capabilities follow, in whole words.
            while !body.rest.is_empty() {
                body.word()?;
            }
            Message::Hello(low)
        }
        kind::RESET => Message::Reset,
        kind::SET_CONFIGURATION => Message::SetConfiguration(body.byte()?),
        kind::GET_CONFIGURATION => Message::GetConfiguration,
        kind::SET_ALT_SETTING => Message::SetSetting { interface: body.byte()?, setting: body.byte()? },
        kind::GET_ALT_SETTING => Message::GetSetting(body.byte()?),
        kind::START_ISO_STREAM => {
            let endpoint = body.endpoint()?;
            body.take::<2>()?;
            Message::StartIso(endpoint)
        }
        kind::STOP_ISO_STREAM => Message::StopIso(body.endpoint()?),
        kind::START_INTERRUPT_RECEIVING => Message::StartInterrupt(body.input()?),
        kind::STOP_INTERRUPT_RECEIVING => Message::StopInterrupt(body.input()?),
        kind::ALLOC_BULK_STREAMS => Message::Streams(body.word()?, body.word()?),
        kind::FREE_BULK_STREAMS => Message::Streams(body.word()?, 0),
        kind::CANCEL_DATA_PACKET => Message::Cancel,
        kind::FILTER_REJECT => Message::Rejected,
        kind::FILTER_FILTER => {
            body.rest = &[];
            Message::Filter
        }
        kind::START_BULK_RECEIVING => {
            let (stream, _) = (body.word()?, body.word()?);
            let endpoint = body.input()?;
            body.byte()?;
            Message::BulkReceiving(stream, endpoint)
        }
        kind::STOP_BULK_RECEIVING => Message::BulkReceiving(body.word()?, body.input()?),
        kind::CONTROL_PACKET => control(&mut body)?,
        kind::BULK_PACKET => bulk(&mut body)?,
        kind::ISO_PACKET | kind::INTERRUPT_PACKET => packet(&mut body)?,
        other => {
            return Err(Error::protocol(format!("a message has type {other}, which a device does not get")));
        }
    };
    if !body.rest.is_empty() {
        return Err(Error::protocol(format!(
            "a message of type {} has {} bytes too many",
            frame.kind,
            body.rest.len()
        )));
    }
    Ok(message)
}

fn control(body: &mut Body<'_>) -> Result<Message, Error> {
    let (endpoint, request, kind) = (body.endpoint()?, body.byte()?, body.byte()?);
    body.byte()?;
    let (value, index, length) = (body.half()?, body.half()?, body.half()?);
    if (endpoint ^ kind) & IN != 0 {
        return Err(Error::protocol(format!(
            "a control request of kind {kind:#04x} goes to endpoint {endpoint:#04x}"
        )));
    }
    let data = body.data(if kind & IN == 0 { length.into() } else { 0 })?;
    Ok(Message::Control(Control { endpoint, request, kind, value, index, length }, data))
}

fn bulk(body: &mut Body<'_>) -> Result<Message, Error> {
    let endpoint = body.endpoint()?;
    body.byte()?;
    let low = body.half()?;
    let stream = body.word()?;
    let length = usize::from(low) | (usize::from(body.half()?) << 16);
    if endpoint & IN != 0 {
        body.data(0)?;
        return Ok(Message::BulkIn { endpoint, stream, length });
    }
    Ok(Message::BulkOut { endpoint, stream, data: body.data(length)? })
}

fn packet(body: &mut Body<'_>) -> Result<Message, Error> {
    let endpoint = body.endpoint()?;
    body.byte()?;
    let length = body.half()?;
    if endpoint & IN != 0 {
        return Err(Error::protocol(format!("a packet for {endpoint:#04x} goes in the wrong direction")));
    }
    let data = body.data(length.into())?;
    Ok(match body.kind {
        kind::ISO_PACKET => Message::IsoOut { endpoint, data },
        _ => Message::InterruptOut { endpoint, data },
    })
}
