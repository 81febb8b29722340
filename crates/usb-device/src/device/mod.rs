//! A device as a state machine: messages of its host and the time go in, messages to its host come out.

mod answers;
mod control;
mod data;
mod flow;
mod rndis;
mod storage;

use crate::counts::Counts;
use crate::descriptors::{CONFIGURATION, Descriptors, Endpoint, Transfer};
use crate::error::Error;
use crate::plan::Plan;
use crate::wire::{Frames, Message, Status, Writer, capability, kind, parse};
use answers::Answers;
use data::Data;
use flow::{Flow, Pending};
use std::time::Duration;

/// A synthetic device that answers one host. It does no I/O; [`serve`](fn@crate::serve) connects it to a socket.
#[derive(Debug)]
pub struct Device {
    descriptors: Descriptors,
    plan: Plan,
    frames: Frames,
    writer: Writer,
    /// True from the host's first message on.
    connected: bool,
    /// The configuration in use; 0 for none.
    configuration: u8,
    /// The setting in use of each interface, in the order of the descriptors.
    settings: Vec<u8>,
    /// Addresses of endpoints that stall until the host clears them.
    halted: Vec<u8>,
    answers: Answers,
    data: Data,
    flow: Flow,
    counts: Counts,
}

impl Device {
    /// A device with these descriptors that answers by plan `plan`, the number that the descriptors were made with.
    pub fn new(descriptors: Descriptors, plan: u64) -> Device {
        let plan = Plan::of(plan);
        let mut writer = Writer::default();
        writer.hello(capability::OURS);
        Device {
            settings: vec![0; descriptors.interfaces.len()],
            descriptors,
            frames: Frames::default(),
            writer,
            connected: false,
            configuration: 0,
            halted: Vec::new(),
            answers: Answers::new(&plan),
            data: Data::new(&plan),
            flow: Flow::new(plan.pace),
            plan,
            counts: Counts::default(),
        }
    }

    /// Adds words that answers are made of: constants that the driver compares with. At most 4096 are used.
    #[must_use]
    pub fn with_words(mut self, words: &[u32]) -> Device {
        self.answers.words(words);
        self.data.words(words);
        self
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes bytes of the host, in pieces of any length; `now` is the time since any fixed moment.
    ///
    /// After an error, the device is of no more use.
    pub fn message(&mut self, bytes: &[u8], now: Duration) -> Result<(), Error> {
        self.frames.push(bytes);
        while let Some(frame) = self.frames.take()? {
            let message = parse(&frame)?;
            self.handle(frame.id, message, now)?;
        }
        Ok(())
    }

    /// Makes the data that is due at `now`.
    pub fn due(&mut self, now: Duration) {
        self.give(now);
    }

    /// How long after `now` something is due; `None` where the device waits for its host.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.flow.wait(now)
    }

    /// The bytes that are to be sent to the host. The caller takes from their start what it has sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.writer.bytes
    }

    fn handle(&mut self, id: u64, message: Message, now: Duration) -> Result<(), Error> {
        if !self.connected && !matches!(message, Message::Hello(_)) {
            return Err(Error::protocol("a message came before the greeting"));
        }
        match message {
            Message::Hello(capabilities) => self.connect(capabilities)?,
            Message::Reset => {
                self.configuration = 0;
                self.settle();
            }
            Message::SetConfiguration(value) => self.set_configuration(id, value),
            Message::GetConfiguration => {
                let body = [Status::Success as u8, self.configuration];
                self.writer.message(kind::CONFIGURATION_STATUS, id, &[&body]);
            }
            Message::SetSetting { interface, setting } => self.set_setting(id, interface, setting),
            Message::GetSetting(interface) => {
                let setting = self.place(interface).map(|place| self.settings[place]);
                let status = if setting.is_some() { Status::Success } else { Status::Stall };
                let body = [status as u8, interface, setting.unwrap_or(0)];
                self.writer.message(kind::ALT_SETTING_STATUS, id, &[&body]);
            }
            Message::StartIso(address) => self.start(kind::ISO_STREAM_STATUS, address, Transfer::Iso, now),
            Message::StopIso(address) => self.stop(kind::ISO_STREAM_STATUS, address),
            Message::StartInterrupt(address) => {
                self.start(kind::INTERRUPT_RECEIVING_STATUS, address, Transfer::Interrupt, now);
            }
            Message::StopInterrupt(address) => self.stop(kind::INTERRUPT_RECEIVING_STATUS, address),
            Message::Streams(endpoints, count) => {
                let body = [endpoints.to_le_bytes(), count.to_le_bytes()];
                let parts: [&[u8]; 2] = [body.as_flattened(), &[Status::Invalid as u8]];
                self.writer.message(kind::BULK_STREAMS_STATUS, id, &parts);
            }
            Message::BulkReceiving(stream, endpoint) => {
                let parts: [&[u8]; 2] = [&stream.to_le_bytes(), &[endpoint, Status::Stall as u8]];
                self.writer.message(kind::BULK_RECEIVING_STATUS, id, &parts);
            }
            Message::Cancel => {
                if let Some(one) = self.flow.cancel(id) {
                    self.drop_pending(&[one]);
                }
            }
            Message::Rejected => return Err(Error::Refused),
            Message::Filter => {}
            Message::Control(request, data) => self.control(id, &request, &data),
            Message::BulkIn { endpoint, stream, length } => {
                let one = Pending { id, endpoint, stream, length, due: now };
                self.want(one, now)?;
            }
            Message::BulkOut { endpoint, stream, data } => self.take_bulk(id, endpoint, stream, &data),
            Message::IsoOut { .. } => self.counts.iso_out += 1,
            Message::InterruptOut { endpoint, data } => self.take_interrupt(id, endpoint, &data),
        }
        Ok(())
    }

    /// Answers the host's greeting with what the device is.
    fn connect(&mut self, capabilities: u32) -> Result<(), Error> {
        if self.connected {
            return Err(Error::protocol("a second greeting came"));
        }
        let needed = [
            (capability::CONNECT_DEVICE_VERSION, "the capability connect_device_version"),
            (capability::EP_INFO_MAX_PACKET_SIZE, "the capability ep_info_max_packet_size"),
            (capability::IDS_64_BITS, "the capability 64bits_ids"),
            (capability::BULK_LENGTH_32_BITS, "the capability 32bits_bulk_length"),
        ];
        if let Some((_, name)) = needed.iter().find(|(bit, _)| capabilities & bit == 0) {
            return Err(Error::Capability(name));
        }
        self.connected = true;
        // A host wants to know about endpoints before it attaches the device.
        self.configuration = CONFIGURATION;
        self.inform();
        self.configuration = 0;
        self.writer.connect(&self.descriptors);
        Ok(())
    }

    /// The place of the interface with this number in the list of settings.
    fn place(&self, interface: u8) -> Option<usize> {
        self.descriptors.interfaces.iter().position(|one| one.number == interface)
    }

    /// The endpoints in use, with the numbers of their interfaces.
    fn endpoints(&self) -> impl Iterator<Item = (u8, &Endpoint)> {
        let used = if self.configuration == 0 { &[][..] } else { &self.descriptors.interfaces[..] };
        used.iter().zip(&self.settings).flat_map(|(interface, &setting)| {
            let setting = interface.settings.get(usize::from(setting));
            setting.into_iter().flat_map(|setting| &setting.endpoints).map(|one| (interface.number, one))
        })
    }

    fn endpoint(&self, address: u8, transfer: Transfer) -> Option<&Endpoint> {
        self.endpoints().map(|(_, one)| one).find(|one| one.address == address && one.transfer == transfer)
    }

    /// Gives the host the endpoints and interfaces in use.
    fn inform(&mut self) {
        let mut writer = std::mem::take(&mut self.writer);
        let endpoints: Vec<(u8, &Endpoint)> = self.endpoints().collect();
        let used = self.descriptors.interfaces.iter().zip(&self.settings);
        let interfaces: Vec<(u8, [u8; 3])> = used
            .filter_map(|(one, &setting)| Some((one.number, one.settings.get(usize::from(setting))?.class)))
            .collect();
        writer.information(&endpoints, &interfaces);
        self.writer = writer;
    }

    /// Ends all transfers, with the settings and halts of endpoints before.
    fn settle(&mut self) {
        self.settings.fill(0);
        self.halted.clear();
        let pending = self.flow.clear();
        self.drop_pending(&pending);
    }

    fn drop_pending(&mut self, pending: &[Pending]) {
        for one in pending {
            self.counts.cancelled += 1;
            self.writer.bulk(one.id, one.endpoint, one.stream, Status::Cancelled, 0, &[]);
        }
    }

    fn set_configuration(&mut self, id: u64, value: u8) {
        let known = value == 0 || value == CONFIGURATION;
        self.counts.control_out += 1;
        if known {
            self.settle();
            self.configuration = value;
            self.counts.configured += u64::from(value != 0);
            self.inform();
        } else {
            self.counts.stalls += 1;
        }
        let status = if known { Status::Success } else { Status::Stall };
        self.writer.message(kind::CONFIGURATION_STATUS, id, &[&[status as u8, self.configuration]]);
    }

    fn set_setting(&mut self, id: u64, interface: u8, setting: u8) {
        self.counts.control_out += 1;
        let place = self.place(interface).filter(|_| self.configuration != 0);
        let place = place.filter(|_| self.descriptors.setting(interface, setting).is_some());
        let (status, setting) = match place {
            Some(place) => {
                let old: Vec<u8> = self
                    .endpoints()
                    .filter(|(number, _)| *number == interface)
                    .map(|(_, one)| one.address)
                    .collect();
                self.halted.retain(|address| !old.contains(address));
                let pending = self.flow.leave(&old);
                self.drop_pending(&pending);
                self.settings[place] = setting;
                self.inform();
                (Status::Success, setting)
            }
            None => {
                self.counts.stalls += 1;
                (Status::Stall, self.place(interface).map_or(0, |place| self.settings[place]))
            }
        };
        self.writer.message(kind::ALT_SETTING_STATUS, id, &[&[status as u8, interface, setting]]);
    }
}

#[cfg(test)]
mod tests;
