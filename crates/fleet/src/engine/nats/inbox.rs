//! Results on their way to the controller: a request for some is open all the time.
//!
//! A server says when a request is over, but not always: `nats-server` 2.9 forgets it at times. Who waits for that word only, and
//! gives up, loses what came before, and gets it again after seconds. So a request is longer than a look, what came is returned
//! at the end of the look, and the request stays open for the next one.

use crate::engine::nats::link::Link;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::StreamExt;
use guardrail_host::error::sentence;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How many results are asked for, and returned, at a time.
const AT_ONCE: usize = 100;
/// How long the server keeps a request.
const OPEN: Duration = Duration::from_secs(5);
/// How much later a request counts as over of which the server does not say it.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// How long the server may take to accept a request.
const ASKING: Duration = Duration::from_secs(3);

/// The open request for results.
#[derive(Default)]
pub struct Inbox(Option<Open>);

struct Open {
    batch: Batch,
    /// When the server has ended it, whatever it says.
    over: Instant,
    /// The connection that it was made with; the server does not know it on another one.
    connection: u64,
}

impl Inbox {
    /// What comes within this time, and at most 100 messages; an error where the server is away.
    pub fn take(
        &mut self,
        link: &Link,
        consumer: &PullConsumer,
        time: Duration,
    ) -> Result<Vec<Message>, String> {
        let end = Instant::now() + time;
        let mut messages = Vec::new();
        link.block(async {
            while messages.len() < AT_ONCE {
                let connection = link.connected().count();
                if !link.is_connected() {
                    self.0 = None;
                    return if messages.is_empty() {
                        Err("the connection is lost".to_owned())
                    } else {
                        Ok(())
                    };
                }
                self.0 = self.0.take().filter(|open| open.connection == connection);
                let open = match &mut self.0 {
                    Some(open) => open,
                    None => {
                        let asked = consumer.batch().max_messages(AT_ONCE).expires(OPEN).messages();
                        let asked = timeout(ASKING, asked).await.map_err(|_| "it does not answer")?;
                        let batch = asked.map_err(|error| sentence(&error))?;
                        self.0.insert(Open { batch, over: Instant::now() + OPEN + FORGOTTEN, connection })
                    }
                };
                let over = open.over;
                // What came already is returned, also where no time is left.
                let left = end.min(over).saturating_duration_since(Instant::now());
                match timeout(left, open.batch.next()).await {
                    Ok(Some(Ok(message))) => messages.push(message),
                    Ok(None) => self.0 = None,
                    Ok(Some(Err(error))) => {
                        self.0 = None;
                        return if messages.is_empty() { Err(error.to_string()) } else { Ok(()) };
                    }
                    Err(_) if Instant::now() >= over => self.0 = None,
                    Err(_) => break,
                }
                if self.0.is_none() && Instant::now() >= end {
                    break;
                }
            }
            Ok(())
        })?;
        Ok(messages)
    }
}
