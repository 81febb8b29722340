//! The descriptors of a device: what it says about itself.

mod class;
mod encode;
mod layout;
mod text;

use crate::alias::Alias;
use crate::plan::{Plan, Shape, Speed};
use crate::random::Random;
use encode::Kind as Descriptor;

/// The value of the only configuration.
pub(crate) const CONFIGURATION: u8 = 1;

/// How an endpoint transfers, with the numbers of USB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Iso = 1,
    Bulk = 2,
    Interrupt = 3,
}

/// One endpoint of a setting of an interface.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The number, with bit 7 set for one that gives data to the host.
    pub address: u8,
    pub transfer: Transfer,
    /// Most bytes of a packet.
    pub packet: u16,
    /// `bInterval`: frames, or an exponent of microframes.
    pub interval: u8,
    /// Class-specific descriptors that follow.
    pub extra: Vec<u8>,
}

/// One setting of an interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    /// Class, subclass and protocol.
    pub class: [u8; 3],
    pub endpoints: Vec<Endpoint>,
    /// Class-specific descriptors that come before the endpoints.
    pub extra: Vec<u8>,
}

/// One interface; its settings have the numbers 0, 1, ...
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub number: u8,
    pub settings: Vec<Setting>,
}

/// The descriptors of a device with one configuration.
#[derive(Clone, Debug)]
pub struct Descriptors {
    pub(crate) speed: Speed,
    pub(crate) vendor: u16,
    pub(crate) product: u16,
    pub(crate) version: u16,
    /// Class, subclass and protocol of the device.
    pub(crate) class: [u8; 3],
    pub(crate) interfaces: Vec<Interface>,
    /// The report descriptor of all HID interfaces; empty where the device has no such interface.
    pub(crate) report: Vec<u8>,
}

/// A vendor and product for aliases that leave them open: a number for tests of pid.codes.
const ANY_VENDOR: u16 = 0x1209;
const ANY_PRODUCT: u16 = 0x0001;

impl Descriptors {
    /// Descriptors that match `alias`, with what it leaves open chosen by plan `plan`; `None` where it is no USB alias.
    ///
    /// Plan 0 is the most usual choice, those below [`crate::CURATED`] are other usual ones, and all others are drawn
    /// from their number.
    pub fn from_alias(alias: &str, plan: u64) -> Option<Descriptors> {
        let alias = Alias::parse(alias)?;
        let plan = Plan::of(plan);
        let mut random = Random::new(&[plan.seed, 2]);
        let interfaces = layout::interfaces(&alias, &plan, &mut random);
        let whole = matches!(plan.shape, Shape::Many | Shape::Sound | Shape::Bulk);
        let mut descriptors = Descriptors {
            speed: plan.speed,
            vendor: alias.vendor.unwrap_or(ANY_VENDOR),
            product: alias.product.unwrap_or(ANY_PRODUCT),
            version: alias.version.unwrap_or(0x0100),
            class: [
                // Most devices leave it to their interfaces; some are a vendor's as a whole.
                alias.device_class.unwrap_or(if whole { 0xff } else { 0 }),
                alias.device_subclass.unwrap_or(0),
                alias.device_protocol.unwrap_or(0),
            ],
            interfaces,
            report: Vec::new(),
        };
        class::dress(&mut descriptors, &alias, &plan, &mut random);
        Some(descriptors)
    }

    /// The setting `number` of an interface.
    pub(crate) fn setting(&self, interface: u8, number: u8) -> Option<&Setting> {
        let interface = self.interfaces.iter().find(|one| one.number == interface)?;
        interface.settings.get(usize::from(number))
    }

    /// The descriptor that a request asks for: `value` has its type and index. `None` where the device lacks it.
    pub(crate) fn get(&self, value: u16, recipient: u8) -> Option<Vec<u8>> {
        let [index, kind] = value.to_le_bytes();
        match kind {
            Descriptor::DEVICE => Some(encode::device(self)),
            Descriptor::CONFIGURATION => {
                (index == 0).then(|| encode::configuration(self, Descriptor::CONFIGURATION))
            }
            Descriptor::STRING => Some(text::string(index)),
            Descriptor::QUALIFIER => (self.speed == Speed::High).then(|| encode::qualifier(self)),
            Descriptor::OTHER_SPEED => {
                (self.speed == Speed::High).then(|| encode::configuration(self, Descriptor::OTHER_SPEED))
            }
            Descriptor::BOS => Some(encode::bos()),
            Descriptor::HID if recipient == 1 => Some(class::hid(self.report.len())),
            Descriptor::REPORT if recipient == 1 => (!self.report.is_empty()).then(|| self.report.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
