//! The part of QEMU's machine protocol that a run needs: the handshake, the events that end a run, quit.

use serde::Deserialize;
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long QEMU may take to read a command.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// QEMU's control socket. Once QEMU has not read a command within a second, all further ones fail at once: a QEMU
/// that hangs must not hold up those who end it.
pub(crate) struct Control {
    stream: UnixStream,
    deaf: bool,
}

impl Control {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Control> {
        stream.set_write_timeout(Some(READ_LIMIT))?;
        Ok(Control { stream, deaf: false })
    }

    /// Ends what reads from the socket.
    pub(crate) fn shut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Write for Control {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let deadline = Instant::now() + READ_LIMIT;
        let mut written = 0;
        while written < bytes.len() {
            if self.deaf || Instant::now() >= deadline {
                self.deaf = true;
                return Err(io::Error::new(ErrorKind::TimedOut, "QEMU does not read its commands"));
            }
            match self.stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.deaf = true,
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message of QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The greeting: it waits for [`negotiate`].
    Greeting,
    /// A command succeeded.
    Return,
    /// A command failed, with QEMU's description.
    Error(String),
    /// The machine shuts down; `reason` is QEMU's word for it, such as `guest-shutdown`.
    Shutdown {
        /// QEMU's word for the reason.
        reason: String,
    },
    /// The guest reported through a device that it panicked.
    GuestPanicked,
    /// The guest's memory was written to a file, or why that failed.
    Dumped(std::result::Result<(), String>),
    /// The whole guest was written to a file, or why that failed.
    Saved(std::result::Result<(), String>),
    /// Any other event.
    Event(String),
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "QMP")]
    greeting: Option<serde_json::Value>,
    #[serde(rename = "return")]
    result: Option<serde_json::Value>,
    error: Option<RawError>,
    event: Option<String>,
    data: Option<RawData>,
}

#[derive(Deserialize)]
struct RawError {
    desc: String,
}

#[derive(Deserialize, Default)]
struct RawData {
    reason: Option<String>,
    status: Option<String>,
    error: Option<serde_json::Value>,
}

impl RawData {
    /// The result of an operation that ran in the background.
    fn result(self) -> std::result::Result<(), String> {
        match self.error {
            None => Ok(()),
            Some(error) => Err(error.as_str().unwrap_or("without a word").to_owned()),
        }
    }
}

impl Message {
    /// Reads a line; `None` where it is not a message.
    pub fn parse(line: &str) -> Option<Message> {
        let raw: Raw = serde_json::from_str(line).ok()?;
        if raw.greeting.is_some() {
            return Some(Message::Greeting);
        }
        if let Some(error) = raw.error {
            return Some(Message::Error(error.desc));
        }
        if let Some(event) = raw.event {
            return Some(match event.as_str() {
                "SHUTDOWN" => {
                    Message::Shutdown { reason: raw.data.unwrap_or_default().reason.unwrap_or_default() }
                }
                "GUEST_PANICKED" => Message::GuestPanicked,
                "MIGRATION" => match raw.data.unwrap_or_default().status.as_deref() {
                    Some("completed") => Message::Saved(Ok(())),
                    Some("failed") => Message::Saved(Err("it could not be written".to_owned())),
                    _ => Message::Event(event),
                },
                "DUMP_COMPLETED" => Message::Dumped(raw.data.unwrap_or_default().result()),
                _ => Message::Event(event),
            });
        }
        raw.result.map(|_| Message::Return)
    }
}

/// Sends a command without arguments.
pub fn say(command: &str, mut to: impl Write) -> io::Result<()> {
    to.write_all(format!("{{\"execute\":\"{command}\"}}\n").as_bytes())
}

/// Asks QEMU to write the memory of a guest that is stopped to a file, as an ELF core. QEMU does it in the
/// background and ends with [`Message::Dumped`]. The guest's page tables are not followed: QEMU would trust
/// them.
pub fn dump(file: &Path, mut to: impl Write) -> io::Result<()> {
    let name = file.to_str().ok_or_else(|| io::Error::other("its name is no text"))?;
    let arguments =
        serde_json::json!({ "paging": false, "detach": true, "protocol": format!("file:{name}") });
    let command = serde_json::json!({ "execute": "dump-guest-memory", "arguments": arguments });
    to.write_all(format!("{command}\n").as_bytes())
}

/// Asks QEMU to write a guest to a file, from which another QEMU with the same parts continues. It ends with
/// [`Message::Saved`].
pub fn save(file: &Path, mut to: impl Write) -> io::Result<()> {
    let name = file.to_str().ok_or_else(|| io::Error::other("its name is no text"))?;
    let events = serde_json::json!([{ "capability": "events", "state": true }]);
    let enable =
        serde_json::json!({ "execute": "migrate-set-capabilities", "arguments": { "capabilities": events } });
    let save = serde_json::json!({ "execute": "migrate", "arguments": { "uri": format!("file:{name}") } });
    to.write_all(format!("{enable}\n{save}\n").as_bytes())
}

/// Asks the guest to release a device, as if somebody unplugged it.
pub fn unplug(id: &str, mut to: impl Write) -> io::Result<()> {
    let command = serde_json::json!({ "execute": "device_del", "arguments": { "id": id } });
    to.write_all(format!("{command}\n").as_bytes())
}

/// The actions that a guest may ask of its host, and the commands that do them. The words are fixed: a guest
/// chooses among them and can send nothing else to QEMU.
const ACTIONS: [(&str, &str); 7] = [
    ("link-down", r#"{"execute":"set_link","arguments":{"name":"net0","up":false}}"#),
    ("link-up", r#"{"execute":"set_link","arguments":{"name":"net0","up":true}}"#),
    ("unplug", r#"{"execute":"device_del","arguments":{"id":"stick"}}"#),
    ("key", r#"{"execute":"send-key","arguments":{"keys":[{"type":"qcode","data":"shift"}]}}"#),
    (
        "move",
        r#"{"execute":"input-send-event","arguments":{"events":[{"type":"rel","data":{"axis":"x","value":5}}]}}"#,
    ),
    ("balloon-small", r#"{"execute":"balloon","arguments":{"value":268435456}}"#),
    ("balloon-large", r#"{"execute":"balloon","arguments":{"value":536870912}}"#),
];

/// Does what a guest asked for; other words are ignored.
pub fn act(what: &str, mut to: impl Write) -> io::Result<()> {
    match ACTIONS.iter().find(|(word, _)| *word == what) {
        Some((_, command)) => to.write_all(format!("{command}\n").as_bytes()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_chooses_among_known_actions_only() {
        let said = |what: &str| {
            let mut out = Vec::new();
            act(what, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(said("link-down").contains("set_link") && said("link-down").ends_with('\n'));
        assert_eq!(said("quit"), "");
        for (_, command) in ACTIONS {
            assert!(serde_json::from_str::<serde_json::Value>(command).is_ok(), "{command}");
        }
    }

    #[test]
    fn a_qemu_that_does_not_read_holds_nobody_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut control = Control::new(ours).unwrap();
        say("stop", &mut control).unwrap();
        // The socket's buffer is full after some of these.
        let said = (0..1_000_000).find_map(|_| say("stop", &mut control).err());
        assert_eq!(said.unwrap().kind(), ErrorKind::TimedOut);
        // Nothing is waited for any more, though there is room again.
        drop(theirs);
        let before = Instant::now();
        assert!((0..1000).all(|_| say("quit", &mut control).is_err()));
        assert!(before.elapsed() < 100 * READ_LIMIT);
    }

    #[test]
    fn messages_are_told_apart() {
        let parse = |line: &str| Message::parse(line).unwrap();
        assert_eq!(parse(r#"{"QMP": {"version": {}, "capabilities": []}}"#), Message::Greeting);
        assert_eq!(parse(r#"{"return": {}}"#), Message::Return);
        assert_eq!(
            parse(r#"{"error": {"class": "GenericError", "desc": "no"}}"#),
            Message::Error("no".into())
        );
        assert_eq!(
            parse(
                r#"{"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}"#
            ),
            Message::Shutdown { reason: "guest-reset".into() }
        );
        assert_eq!(
            parse(r#"{"event": "NIC_RX_FILTER_CHANGED", "data": {"name": "x"}}"#),
            Message::Event("NIC_RX_FILTER_CHANGED".into())
        );
        let dumped = |more: &str| {
            format!(
                r#"{{"event": "DUMP_COMPLETED", "data": {{"result": {{"total": 1, "status": "x"}}{more}}}}}"#
            )
        };
        assert_eq!(parse(&dumped("")), Message::Dumped(Ok(())));
        assert_eq!(parse(&dumped(r#", "error": "disk full""#)), Message::Dumped(Err("disk full".into())));
        let migrated =
            |status: &str| parse(&format!(r#"{{"event": "MIGRATION", "data": {{"status": "{status}"}}}}"#));
        assert_eq!(migrated("completed"), Message::Saved(Ok(())));
        assert!(matches!(migrated("failed"), Message::Saved(Err(_))));
        assert_eq!(migrated("active"), Message::Event("MIGRATION".into()));
        assert_eq!(Message::parse("garbage"), None);
        assert_eq!(Message::parse("{}"), None);
    }
}
