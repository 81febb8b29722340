use super::Device;
use crate::descriptors::Descriptors;
use crate::error::Error;
use crate::random::Random;
use crate::wire::{VERSION_LENGTH, kind};
use std::time::Duration;

const ALIAS: &str = "usb:v067Bp2303d*dc*dsc*dp*ic*isc*ip*in*";
const STORAGE: &str = "usb:v*p*d*dc*dsc*dp*ic08isc06ip50in*";

/// The capabilities of QEMU 11.
const CAPABILITIES: u32 = 0xf6;

/// A message that a device has sent: its type, id and body.
type Sent = (u32, u64, Vec<u8>);

/// A device and its host.
struct Host {
    device: Device,
    now: Duration,
}

fn hello(capabilities: u32) -> Vec<u8> {
    let words = [kind::HELLO, 68, 0].map(u32::to_le_bytes);
    [words.as_flattened(), &[0; VERSION_LENGTH], &capabilities.to_le_bytes()].concat()
}

fn message(kind: u32, id: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&kind.to_le_bytes()[..], &length.to_le_bytes(), &id.to_le_bytes(), body].concat()
}

impl Host {
    /// A device that was enumerated and configured.
    fn new(alias: &str, plan: u64) -> Host {
        let mut host = Host::bare(alias, plan, &[]);
        host.send(&hello(CAPABILITIES));
        host.send(&message(kind::SET_CONFIGURATION, 1, &[1]));
        assert_eq!(host.sent().last(), Some(&(kind::CONFIGURATION_STATUS, 1, vec![0, 1])));
        host
    }

    fn bare(alias: &str, plan: u64, words: &[u32]) -> Host {
        let mut device = Device::new(Descriptors::from_alias(alias, plan).unwrap(), plan).with_words(words);
        assert_eq!(device.output().len(), 12 + VERSION_LENGTH + 4);
        device.output().clear();
        Host { device, now: Duration::ZERO }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.device.message(bytes, self.now).unwrap();
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now += Duration::from_millis(1);
            self.device.due(self.now);
        }
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut rest = &std::mem::take(self.device.output())[..];
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let length = word(4) as usize;
            let id = u64::from_le_bytes(rest[8..16].try_into().unwrap());
            sent.push((word(0), id, rest[16..16 + length].to_vec()));
            rest = &rest[16 + length..];
        }
        sent
    }

    /// The status and data of a control request.
    fn control(
        &mut self,
        request: [u8; 2],
        value: u16,
        index: u16,
        data: &[u8],
        length: u16,
    ) -> (u8, Vec<u8>) {
        let [kind, request] = request;
        let mut body = vec![kind & 0x80, request, kind, 0];
        for word in [value, index, length] {
            body.extend(word.to_le_bytes());
        }
        body.extend(data);
        self.send(&message(kind::CONTROL_PACKET, 9, &body));
        let (kind, id, body) = self.sent().pop().unwrap();
        assert_eq!((kind, id), (kind::CONTROL_PACKET, 9));
        (body[3], body[10..].to_vec())
    }

    fn bulk_in(&mut self, id: u64, length: u16) {
        let [low, high] = length.to_le_bytes();
        self.send(&message(kind::BULK_PACKET, id, &[0x81, 0, low, high, 0, 0, 0, 0, 0, 0]));
    }

    fn bulk_out(&mut self, data: &[u8]) {
        let header = [0x02, 0, u8::try_from(data.len()).unwrap(), 0, 0, 0, 0, 0, 0, 0];
        self.send(&message(kind::BULK_PACKET, 2, &[&header[..], data].concat()));
    }
}

#[test]
fn a_greeting_is_answered_with_the_device() {
    let mut host = Host::bare(ALIAS, 0, &[]);
    host.send(&hello(CAPABILITIES));
    let sent = host.sent();
    let kinds: Vec<u32> = sent.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [kind::EP_INFO, kind::INTERFACE_INFO, kind::DEVICE_CONNECT]);
    assert_eq!(sent[0].2.len(), 32 * 5);
    assert_eq!(sent[1].2.len(), 4 + 32 * 4);
    assert_eq!(sent[2].2, [2, 0, 0, 0, 0x7b, 0x06, 0x03, 0x23, 0x00, 0x01]);
    // Endpoints that are not there have type 255; bulk in 1 has type 2 and packets of 512 bytes.
    assert_eq!((sent[0].2[16], sent[0].2[17], sent[0].2[31]), (0, 2, 0xff));
    assert_eq!(sent[0].2[96 + 34..96 + 36], [0, 2]);
}

#[test]
fn a_peer_without_what_is_needed_is_refused() {
    let mut host = Host::bare(ALIAS, 0, &[]);
    let error = host.device.message(&hello(0x76 & !0x20), host.now).unwrap_err();
    assert!(matches!(error, Error::Capability(name) if name.contains("64bits_ids")));
    let mut host = Host::new(ALIAS, 0);
    let again = message(kind::HELLO, 0, &[0; 68]);
    assert!(host.device.message(&again, host.now).unwrap_err().to_string().contains("second greeting"));
    let mut host = Host::new(ALIAS, 0);
    let error = host.device.message(&message(kind::FILTER_REJECT, 0, &[]), host.now).unwrap_err();
    assert!(matches!(error, Error::Refused));
}

#[test]
fn standard_requests_are_answered() {
    let mut host = Host::new(ALIAS, 0);
    let (status, device) = host.control([0x80, 6], 0x0100, 0, &[], 64);
    assert_eq!((status, device.len()), (0, 18));
    assert_eq!(host.control([0x80, 6], 0x0100, 0, &[], 8), (0, device[..8].to_vec()));
    assert_eq!(host.control([0x80, 6], 0x2a00, 0, &[], 8).0, 4);
    assert_eq!(host.control([0x80, 0], 0, 0, &[], 2), (0, vec![0, 0]));
    // A halted endpoint stalls until it is cleared.
    assert_eq!(host.control([0x02, 3], 0, 0x81, &[], 0).0, 0);
    assert_eq!(host.control([0x82, 0], 0, 0x81, &[], 2), (0, vec![1, 0]));
    host.bulk_in(5, 64);
    assert_eq!(host.sent()[0].2[1], 4);
    assert_eq!(host.control([0x02, 1], 0, 0x81, &[], 0).0, 0);
    host.bulk_in(6, 64);
    host.pass(20);
    assert_eq!(host.sent()[0].2[1], 0);
}

#[test]
fn settings_change_the_endpoints() {
    let mut host = Host::new(ALIAS, 0);
    host.send(&message(kind::START_ISO_STREAM, 0, &[0x85, 1, 1]));
    assert_eq!(host.sent(), [(kind::ISO_STREAM_STATUS, 0, vec![4, 0x85])]);
    host.send(&message(kind::SET_ALT_SETTING, 3, &[0, 1]));
    assert_eq!(host.sent().pop(), Some((kind::ALT_SETTING_STATUS, 3, vec![0, 0, 1])));
    host.send(&message(kind::START_ISO_STREAM, 0, &[0x85, 1, 1]));
    assert_eq!(host.sent(), [(kind::ISO_STREAM_STATUS, 0, vec![0, 0x85])]);
    host.pass(100);
    assert!(host.sent().iter().filter(|(kind, ..)| *kind == kind::ISO_PACKET).count() > 10);
    host.send(&message(kind::GET_ALT_SETTING, 4, &[0]));
    host.send(&message(kind::SET_ALT_SETTING, 5, &[0, 9]));
    let answers =
        [(kind::ALT_SETTING_STATUS, 4, vec![0, 0, 1]), (kind::ALT_SETTING_STATUS, 5, vec![4, 0, 1])];
    assert_eq!(host.sent(), answers);
    host.send(&message(kind::RESET, 0, &[]));
    host.pass(100);
    assert_eq!(host.sent(), []);
}

#[test]
fn what_was_written_is_read_again() {
    let mut host = Host::new(ALIAS, 0);
    assert_eq!(host.control([0xc0, 1], 2, 3, &[], 2), (0, vec![0, 0]));
    assert_eq!(host.control([0x40, 1], 2, 3, &[0xab, 0xcd], 2).0, 0);
    assert_eq!(host.control([0xc0, 1], 2, 3, &[], 4), (0, vec![0xab, 0xcd, 0, 0]));
    assert_eq!(host.control([0xc0, 1], 7, 7, &[], 1), (0, vec![0]));
}

#[test]
fn one_who_asks_again_and_again_gets_other_answers() {
    for plan in 0..crate::CURATED {
        let mut host = Host::bare(ALIAS, plan, &[0x1234]);
        host.send(&hello(CAPABILITIES));
        host.sent();
        let answers: Vec<Vec<u8>> = (0..64).map(|_| host.control([0xc0, 5], 0, 0, &[], 2).1).collect();
        for wanted in [[0, 0], [1, 0], [0xff, 0xff], [0x34, 0x12]] {
            assert!(answers.iter().any(|answer| *answer == wanted), "plan {plan}: {wanted:?}");
        }
    }
}

#[test]
fn words_are_answers() {
    let mut host = Host::bare(ALIAS, 1, &[0x8153, 0x20]);
    host.send(&hello(CAPABILITIES));
    host.sent();
    let answers: Vec<Vec<u8>> = (0..40).map(|index| host.control([0xc0, 5], index, 0, &[], 2).1).collect();
    assert!(answers.contains(&vec![0x53, 0x81]) && answers.contains(&vec![0x81, 0x53]));
    assert!((0..40).all(|index| host.control([0xc0, 6], index, 0, &[], 1).1 == [0x20]));
}

#[test]
fn every_other_plan_goes_through_the_words() {
    let mut found = std::collections::BTreeSet::new();
    for plan in (crate::CURATED..crate::CURATED + 8).filter(|plan| plan % 2 == 0) {
        let mut host = Host::bare(ALIAS, plan, &[0x53, 0x1_0000, 0x54, 0x55, 0x56]);
        host.send(&hello(CAPABILITIES));
        host.sent();
        let (_, answer) = host.control([0xc0, 5], 0, 0, &[], 1);
        assert_eq!(host.control([0xc0, 9], 7, 0, &[], 1).1, answer);
        found.insert(answer[0]);
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [0x53, 0x54, 0x55, 0x56]);
}

#[test]
fn a_message_out_is_given_back() {
    let mut host = Host::new(ALIAS, 0);
    host.bulk_in(1, 64);
    host.bulk_out(b"hello");
    host.pass(1);
    let sent = host.sent();
    assert_eq!(sent[0], (kind::BULK_PACKET, 2, vec![2, 0, 5, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!((sent[1].1, &sent[1].2[10..]), (1, &b"hello"[..]));
}

#[test]
fn a_cancelled_transfer_is_given_back_once() {
    let mut host = Host::new(ALIAS, 0);
    host.bulk_in(11, 64);
    host.send(&message(kind::CANCEL_DATA_PACKET, 11, &[]));
    host.send(&message(kind::CANCEL_DATA_PACKET, 11, &[]));
    host.pass(50);
    let sent = host.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].1, sent[0].2[1]), (11, 1));
}

#[test]
fn the_device_gives_a_thousand_packets_a_second_at_most() {
    // A host that keeps many transfers waiting on all endpoints of the plan with most of them.
    let mut host = Host::new(ALIAS, 3);
    for number in 13..=15 {
        host.send(&message(kind::START_INTERRUPT_RECEIVING, 0, &[0x80 | number]));
    }
    let mut packets = 0;
    for second in 0..4 {
        for id in 0..2000 {
            let endpoint = 0x81 + u8::try_from(id % 12).unwrap();
            host.send(&message(kind::BULK_PACKET, id, &[endpoint, 0, 64, 0, 0, 0, 0, 0, 0, 0]));
        }
        host.sent();
        host.pass(1000);
        let sent = host.sent().len();
        assert!(sent <= 1100, "{sent} packets in second {second}");
        packets += sent;
        host.send(&message(kind::RESET, 0, &[]));
        host.send(&message(kind::SET_CONFIGURATION, 1, &[1]));
    }
    assert!(packets > 2000);
}

#[test]
fn too_many_waiting_transfers_are_an_error() {
    let mut host = Host::new(ALIAS, 0);
    let one = message(kind::BULK_PACKET, 1, &[0x81, 0, 64, 0, 0, 0, 0, 0, 0, 0]);
    let error = (0..5000).find_map(|_| host.device.message(&one, host.now).err()).unwrap();
    assert!(error.to_string().contains("more than 4096"));
}

#[test]
fn storage_answers_commands() {
    let mut host = Host::new(STORAGE, 0);
    let mut command = [0; 31];
    command[..4].copy_from_slice(b"USBC");
    command[4..8].copy_from_slice(b"tag!");
    command[8] = 36;
    command[12] = 0x80;
    command[15] = 0x12;
    host.bulk_out(&command);
    host.bulk_in(1, 36);
    host.bulk_in(2, 13);
    host.pass(30);
    let sent = host.sent();
    assert_eq!(&sent[1].2[18..23], b"GUARD");
    assert_eq!(sent[2].2[10..], *b"USBStag!\0\0\0\0\0");
}

#[test]
fn any_bytes_give_replies_or_an_error() {
    let valid: Vec<Vec<u8>> = vec![
        hello(CAPABILITIES),
        message(kind::SET_CONFIGURATION, 1, &[1]),
        message(kind::SET_ALT_SETTING, 2, &[0, 1]),
        message(kind::GET_ALT_SETTING, 3, &[0]),
        message(kind::START_ISO_STREAM, 0, &[0x85, 1, 1]),
        message(kind::START_INTERRUPT_RECEIVING, 0, &[0x83]),
        message(kind::STOP_INTERRUPT_RECEIVING, 0, &[0x83]),
        message(kind::CONTROL_PACKET, 4, &[0x80, 6, 0x80, 0, 0, 1, 0, 0, 18, 0]),
        message(kind::CONTROL_PACKET, 5, &[0, 1, 0x40, 0, 0, 1, 0, 0, 2, 0, 1, 2]),
        message(kind::BULK_PACKET, 6, &[0x81, 0, 64, 0, 0, 0, 0, 0, 0, 0]),
        message(kind::BULK_PACKET, 7, &[2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]),
        message(kind::INTERRUPT_PACKET, 8, &[4, 0, 1, 0, 9]),
        message(kind::ISO_PACKET, 8, &[6, 0, 1, 0, 9]),
        message(kind::CANCEL_DATA_PACKET, 6, &[]),
        message(kind::ALLOC_BULK_STREAMS, 9, &[0, 0, 2, 0, 16, 0, 0, 0]),
        message(kind::RESET, 0, &[]),
    ];
    let mut random = Random::new(&[42]);
    let (mut errors, mut fine) = (0, 0);
    for round in 0..20_000_u64 {
        let descriptors = Descriptors::from_alias([ALIAS, STORAGE][random.below(2)], round % 64).unwrap();
        let mut device = Device::new(descriptors, round % 64);
        let mut bytes = if random.one_in(20) { Vec::new() } else { valid[0].clone() };
        for _ in 0..random.below(12) {
            let mut one = random.pick(&[0, 1, 2]);
            let mut piece = match one {
                0 => valid[random.below(valid.len())].clone(),
                1 => {
                    let mut piece = valid[random.below(valid.len())].clone();
                    one = random.below(piece.len());
                    piece[one] = random.below(256) as u8;
                    piece
                }
                _ => {
                    let length = random.below(40);
                    random.bytes(length)
                }
            };
            if random.one_in(8) {
                piece.truncate(random.below(piece.len() + 1));
            }
            bytes.extend(piece);
        }
        let mut now = Duration::ZERO;
        let mut failed = false;
        for piece in bytes.chunks(1 + random.below(100)) {
            if device.message(piece, now).is_err() {
                failed = true;
                break;
            }
            now += Duration::from_millis(random.below(100) as u64);
            device.due(now);
            _ = device.wait(now);
        }
        *(if failed { &mut errors } else { &mut fine }) += 1;
        assert!(device.output().len() < 4 << 20);
    }
    assert!(errors > 1000 && fine > 1000, "{errors} errors, {fine} fine");
}
