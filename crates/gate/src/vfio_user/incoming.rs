//! Assembles messages from the bytes on the socket, without ever waiting for the rest of one.

use super::message::{HEADER, Header};
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A whole message.
#[derive(Debug)]
pub struct Message {
    /// The parsed header.
    pub header: Header,
    /// The bytes behind the header.
    pub body: Vec<u8>,
    /// The descriptors that arrived with it.
    pub fds: Vec<OwnedFd>,
}

/// The result of a read.
#[derive(Debug)]
pub enum Read {
    /// A whole message.
    Message(Message),
    /// No whole message yet.
    Later,
    /// The other side closed the socket.
    Closed,
    /// The bytes are not a message, so nothing after them can be parsed.
    Broken(String),
}

/// The message that is incomplete so far.
#[derive(Debug, Default)]
pub struct Incoming {
    head: [u8; HEADER],
    header: Option<Header>,
    body: Vec<u8>,
    /// Bytes of the header or body that have arrived so far.
    have: usize,
    fds: Vec<OwnedFd>,
}

impl Incoming {
    /// Reads the bytes that have arrived, until a message is whole.
    pub fn read(&mut self, socket: &impl AsRawFd) -> Read {
        loop {
            if let Some(header) = self.header
                && self.have == self.body.len()
            {
                self.header = None;
                self.have = 0;
                let (body, fds) = (std::mem::take(&mut self.body), std::mem::take(&mut self.fds));
                return Read::Message(Message { header, body, fds });
            }
            let room = match self.header {
                None => &mut self.head[self.have..],
                Some(_) => &mut self.body[self.have..],
            };
            match sys::receive(socket, room, &mut self.fds) {
                Ok(0) => return Read::Closed,
                Ok(count) => self.have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Read::Later,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Read::Closed,
                Err(error) => return Read::Broken(error.to_string()),
            }
            if self.header.is_none() && self.have == HEADER {
                match Header::parse(&self.head) {
                    Ok(header) => {
                        self.body = vec![0; header.body()];
                        self.have = 0;
                        self.header = Some(header);
                    }
                    Err(what) => return Read::Broken(what),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_are_put_together_from_pieces() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let mut incoming = Incoming::default();
        let mut bytes = Header { id: 1, command: 9, size: 0, flags: 0 }.reply(&[5; 8]);
        // The flags make it a request.
        bytes[8] = 0;
        for piece in bytes.chunks(5) {
            assert!(matches!(incoming.read(&ours), Read::Later));
            theirs.write_all(piece).unwrap();
        }
        theirs.write_all(&bytes).unwrap();
        for _ in 0..2 {
            let Read::Message(message) = incoming.read(&ours) else { panic!("no message") };
            assert_eq!((message.header.command, message.body), (9, vec![5; 8]));
        }
        theirs.write_all(&[0xff; HEADER]).unwrap();
        assert!(matches!(incoming.read(&ours), Read::Broken(_)));
        let (theirs, ours) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(Incoming::default().read(&ours), Read::Closed));
    }
}
