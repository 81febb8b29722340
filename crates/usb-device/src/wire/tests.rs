use super::{Control, Frames, Message, kind, parse};
use crate::error::Error;
use crate::wire::frame::Frame;

fn frame(kind: u32, body: &[u8]) -> Frame {
    Frame { kind, id: 7, body: body.to_vec() }
}

fn wrong(kind: u32, body: &[u8]) -> String {
    parse(&frame(kind, body)).unwrap_err().to_string()
}

#[test]
fn messages_are_read() {
    let hello = [&[b'q'; 64][..], &0xfe_u32.to_le_bytes()].concat();
    assert_eq!(parse(&frame(kind::HELLO, &hello)).unwrap(), Message::Hello(0xfe));
    let body = [0x80, 6, 0x80, 0, 0x00, 0x01, 0, 0, 18, 0];
    let Message::Control(request, data) = parse(&frame(kind::CONTROL_PACKET, &body)).unwrap() else {
        panic!("no request")
    };
    let expected = Control { endpoint: 0x80, request: 6, kind: 0x80, value: 0x100, index: 0, length: 18 };
    assert_eq!((request, data), (expected, vec![]));
    let body = [0x81, 0, 0x00, 0x02, 0, 0, 0, 0, 1, 0];
    let bulk = Message::BulkIn { endpoint: 0x81, stream: 0, length: 0x1_0200 };
    assert_eq!(parse(&frame(kind::BULK_PACKET, &body)).unwrap(), bulk);
}

#[test]
fn malformed_messages_are_named() {
    assert!(wrong(kind::SET_ALT_SETTING, &[1]).contains("type 9 ends within its header"));
    assert!(wrong(kind::RESET, &[1]).contains("1 bytes too many"));
    assert!(wrong(99, &[]).contains("type 99"));
    assert!(wrong(kind::START_INTERRUPT_RECEIVING, &[0x01]).contains("gives no data"));
    assert!(wrong(kind::STOP_ISO_STREAM, &[0x7f]).contains("0x7f is no endpoint"));
    assert!(wrong(kind::CONTROL_PACKET, &[0x80, 6, 0, 0, 0, 0, 0, 0, 0, 0]).contains("endpoint 0x80"));
    // More data than the header says, less, and data where there may be none.
    assert!(wrong(kind::CONTROL_PACKET, &[0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1]).contains("header says 0"));
    assert!(wrong(kind::BULK_PACKET, &[2, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]).contains("header says 5"));
    assert!(wrong(kind::BULK_PACKET, &[0x81, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]).contains("header says 0"));
    assert!(wrong(kind::ISO_PACKET, &[0x81, 0, 0, 0]).contains("wrong direction"));
    assert!(wrong(kind::HELLO, &[0; 66]).contains("ends within its header"));
}

#[test]
fn a_stream_is_cut_into_messages_whatever_its_pieces() {
    let mut bytes = Vec::new();
    for word in [kind::HELLO, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([0; 64]);
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    for size in 1..bytes.len() {
        let mut frames = Frames::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(size) {
            frames.push(piece);
            while let Some(frame) = frames.take().unwrap() {
                found.push((frame.kind, frame.id, frame.body.len()));
            }
        }
        assert_eq!(found, [(kind::HELLO, 0, 64), (kind::RESET, 0x0807_0605_0403_0201, 0)]);
    }
}

#[test]
fn a_stream_begins_with_a_greeting_and_has_no_huge_message() {
    let taken = |bytes: &[u8]| -> Result<_, Error> {
        let mut frames = Frames::default();
        frames.push(bytes);
        frames.take()
    };
    assert!(taken(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err().to_string().contains("no greeting"));
    let huge = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    assert!(taken(&huge).unwrap_err().to_string().contains("more than 4194304"));
    assert!(taken(&huge[..11]).unwrap().is_none());
}
