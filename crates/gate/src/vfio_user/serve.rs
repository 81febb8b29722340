//! The server's loop: one thread that owns the socket, the device and the interrupts, and never waits for the policy.

use super::holds::Holds;
use super::incoming::{Incoming, Message, Read};
use super::irqs::Irqs;
use super::message::{Header, Refusal, Request};
use super::{Options, Shared, socket};
use crate::device::Device;
use crate::error::{Context, Error, Result};
use crate::policy::{Access, Gate, Verdict};
use crate::sys::{self, Waiter};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The waiter's numbers; those of the device's sources follow.
const WAKE: u64 = 0;
const CLIENT: u64 = 1;
const SOURCES: u64 = 2;

/// How often the loop looks around while nothing happens.
const IDLE: Duration = Duration::from_millis(10);
/// How long the driver VM may leave an answer unread.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// The most messages that are taken before the loop looks around.
const TURN: usize = 16;
/// An access whose sender waits for the answer.
#[derive(Debug)]
pub(super) struct HeldAccess {
    pub(super) header: Header,
    pub(super) region: u32,
    pub(super) access: Access,
    pub(super) bytes: Vec<u8>,
    /// True where the answer was sent already.
    pub(super) answered: bool,
}

/// Waits for the driver VM, starts the device, and serves until either ends.
pub(super) fn run<D: Device>(
    shared: &Shared,
    listener: &UnixListener,
    options: &Options,
    gate: &Arc<dyn Gate>,
    memory: (u64, u64),
    start: impl FnOnce(&Shared) -> Result<D>,
    end: impl FnOnce(D),
) {
    let served = accept(shared, listener).and_then(|client| {
        let Some(client) = client else { return Ok(()) };
        // There is one driver VM, so no second client may connect. Removed now, the socket does not outlive
        // this process in any case.
        let _ = std::fs::remove_file(socket(&options.folder));
        let state = Loop::new(shared, client, options, gate, memory, start(shared)?)?;
        end(state.run());
        Ok(())
    });
    if let Err(error) = served {
        shared.fail(&error);
    }
}

/// Waits for the driver VM; `None` where it is no longer wanted.
fn accept(shared: &Shared, listener: &UnixListener) -> Result<Option<UnixStream>> {
    let waiter = Waiter::new().context("wait for the driver VM")?;
    waiter.add(shared.wake.as_raw_fd(), WAKE).context("wait for the driver VM")?;
    waiter.add(listener.as_raw_fd(), CLIENT).context("wait for the driver VM")?;
    let mut ready = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        waiter.wait(IDLE, &mut ready).context("wait for the driver VM")?;
        shared.wake.take();
        if shared.closed.load(Ordering::SeqCst) {
            // The device does not exist yet, so nothing has to be cut off.
            shared.cut.store(true, Ordering::SeqCst);
        }
        if ready.contains(&CLIENT)
            && let Ok((client, _)) = listener.accept()
        {
            client.set_nonblocking(false).context("speak to the driver VM")?;
            client.set_write_timeout(Some(SEND_LIMIT)).context("speak to the driver VM")?;
            return Ok(Some(client));
        }
    }
    Ok(None)
}

/// The state that the loop owns.
pub(super) struct Loop<'a, D> {
    pub(super) shared: &'a Shared,
    pub(super) gate: &'a Arc<dyn Gate>,
    hold_limit: Duration,
    pub(super) post_writes: bool,
    /// Device and inode of the file that is the guest's memory.
    pub(super) memory: (u64, u64),
    client: UnixStream,
    incoming: Incoming,
    waiter: Waiter,
    pub(super) device: D,
    pub(super) irqs: Irqs,
    pub(super) holds: Holds<HeldAccess>,
    pub(super) maps: usize,
    /// True once the device was cut off.
    cut: bool,
}

impl<'a, D: Device> Loop<'a, D> {
    pub(super) fn new(
        shared: &'a Shared,
        client: UnixStream,
        options: &Options,
        gate: &'a Arc<dyn Gate>,
        memory: (u64, u64),
        device: D,
    ) -> Result<Loop<'a, D>> {
        let waiter = Waiter::new().context("wait for several things")?;
        let sources = device.sources().into_iter().zip(SOURCES..);
        for (fd, number) in
            [(shared.wake.as_raw_fd(), WAKE), (client.as_raw_fd(), CLIENT)].into_iter().chain(sources)
        {
            waiter.add(fd, number).context("wait for several things")?;
        }
        Ok(Loop {
            shared,
            gate,
            hold_limit: options.hold_limit,
            post_writes: options.post_writes,
            memory,
            client,
            incoming: Incoming::default(),
            waiter,
            irqs: Irqs::new(device.layout()),
            device,
            holds: Holds::new(),
            maps: 0,
            cut: false,
        })
    }

    /// Serves until the driver VM disconnects or the server shall stop; returns the device, cut off.
    pub(super) fn run(mut self) -> D {
        let mut ready = Vec::new();
        while !self.shared.stop.load(Ordering::SeqCst) {
            if let Err(error) = self.waiter.wait(self.patience(), &mut ready).context("wait") {
                self.shared.fail(&error);
            }
            if let Some(why) = self.gate.closed() {
                self.shared.close(&why);
            }
            let going_on = self.turn(&ready);
            if self.shared.closed.load(Ordering::SeqCst) {
                self.contain();
            }
            if !going_on {
                break;
            }
        }
        self.shared.closed.store(true, Ordering::SeqCst);
        self.cut();
        self.device
    }

    fn patience(&self) -> Duration {
        let left = |since: Instant| (since + self.hold_limit).saturating_duration_since(Instant::now());
        self.holds.oldest().map_or(IDLE, |since| left(since).min(IDLE))
    }

    /// Does one turn of work; false where the driver VM has disconnected.
    fn turn(&mut self, ready: &[u64]) -> bool {
        let mut going_on = true;
        for number in ready {
            match *number {
                WAKE => {
                    self.shared.wake.take();
                }
                CLIENT => going_on = self.listen(),
                source => self.interrupts(Some((source - SOURCES) as usize)),
            }
        }
        while let Some((held, verdict, waited)) = self.holds.decided(self.post_writes) {
            self.note_hold(waited);
            let verdict = verdict.unwrap_or_else(|| {
                self.shared.close("the policy died");
                Verdict::Drop
            });
            going_on &= self.finish(&held, verdict);
        }
        if self.holds.oldest().is_some_and(|since| since.elapsed() >= self.hold_limit) {
            let limit = self.hold_limit.as_secs_f64();
            self.shared.close(&format!("an access was held for {limit} s without a verdict"));
        }
        going_on
    }

    /// Takes messages; false where no more can arrive.
    fn listen(&mut self) -> bool {
        for _ in 0..TURN {
            match self.incoming.read(&self.client) {
                Read::Message(message) => {
                    if !self.message(message) {
                        return false;
                    }
                }
                Read::Later => return true,
                Read::Closed => return false,
                Read::Broken(what) => {
                    self.shared.fail(&Error::Protocol { what });
                    return false;
                }
            }
        }
        true
    }

    /// Serves a message; false where the driver VM cannot be answered.
    fn message(&mut self, message: Message) -> bool {
        let Message { header, body, fds } = message;
        let answer = match Request::parse(header.command, &body) {
            Err(refusal) => Err(refusal),
            Ok(Request::Read { offset, region, count }) => {
                let bytes = vec![0; count as usize];
                match self.access(header, region, offset, false, bytes) {
                    Ok(going_on) => return going_on,
                    Err(refusal) => Err(refusal),
                }
            }
            Ok(Request::Write { offset, region, data }) => {
                match self.access(header, region, offset, true, data.to_vec()) {
                    Ok(going_on) => return going_on,
                    Err(refusal) => Err(refusal),
                }
            }
            Ok(request) => self.serve(request, fds, &body),
        };
        self.reply(&header, answer)
    }

    pub(super) fn reply(&self, header: &Header, answer: std::result::Result<Vec<u8>, Refusal>) -> bool {
        if !header.wants_reply() {
            return true;
        }
        let bytes = match answer {
            Ok(body) => header.reply(&body),
            Err(why) => header.refuse(why),
        };
        sys::send(&self.client, &bytes, &[]).is_ok()
    }

    /// Delivers the device's pending interrupts.
    pub(super) fn interrupts(&mut self, source: Option<usize>) {
        let closed = self.shared.closed.load(Ordering::SeqCst);
        let (irqs, mut delivered, mut dropped) = (&mut self.irqs, 0, 0);
        let done = self.device.interrupts(source, &mut |interrupt| match closed {
            true => dropped += 1,
            false => delivered += irqs.deliver(interrupt),
        });
        if delivered + dropped > 0 {
            let mut counts = self.shared.counts();
            counts.interrupts += delivered;
            counts.interrupts_dropped += dropped;
        }
        self.survive(done);
    }

    /// Closes the gate where an operation lost the device.
    pub(super) fn survive(&mut self, done: Result<()>) {
        if let Err(error) = done
            && !self.cut
        {
            // Nothing may pass while the loop finds out how the device was lost.
            self.shared.closed.store(true, Ordering::SeqCst);
            self.shared.fail(&self.device.death().unwrap_or(error));
        }
    }

    fn note_hold(&self, waited: Duration) {
        let mut counts = self.shared.counts();
        let waited = waited.as_micros() as u64;
        counts.held_us += waited;
        counts.longest_hold_us = counts.longest_hold_us.max(waited);
    }

    /// After the gate closed: cuts the device off and answers the accesses that wait.
    fn contain(&mut self) {
        if self.cut {
            return;
        }
        self.cut();
        self.give_up();
    }

    /// Drops all accesses that wait.
    pub(super) fn give_up(&mut self) {
        while let Some((held, waited)) = self.holds.give_up() {
            self.note_hold(waited);
            self.finish(&held, Verdict::Drop);
        }
    }

    fn cut(&mut self) {
        if !std::mem::replace(&mut self.cut, true) {
            // Where this fails the device has been ended, which has the same effect.
            let _ = self.device.cut();
            // Further interrupts of the device are useless, and its end would be reported again and again.
            self.device.sources().into_iter().for_each(|fd| self.waiter.remove(fd));
            let operations = self.device.operations();
            let mut counts = self.shared.counts();
            counts.own_writes = operations.table;
            counts.config_operations = operations.config;
            drop(counts);
            self.shared.cut.store(true, Ordering::SeqCst);
        }
    }
}
