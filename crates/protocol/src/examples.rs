//! Charts for tests.

use crate::{Machine, parse};

/// Three protocols of a network driver, close to those of the paper.
pub const NIC: &str = "
protocol bus
  of pci
  state unbound initial final fair
  state probing owed
  state bound
    state running initial fair
    state suspending owed
    state suspended fair
    state resuming owed
    state removing owed
  state lost owed
    state quiet initial
    state while_suspending
    state while_resuming
  state unplugged final
  in probe(struct pci_dev *dev) sleeps: unbound -> probing is begin probe
  out probed: probing -> bound is end probe if zero
  out probe_failed(long error): probing -> unbound is end probe if nonzero
  in suspend sleeps: running -> suspending
  out suspended: suspending -> suspended
  out suspended: while_suspending -> quiet
  in resume sleeps: suspended -> resuming
  out resumed: resuming -> running
  out resumed: while_resuming -> quiet
  in unplug: running|suspended -> lost
  in unplug: suspending -> while_suspending
  in unplug: resuming -> while_resuming
  out unplug_done: quiet -> unplugged
  in remove sleeps: running -> removing is begin remove
  out removed: removing -> unbound is end remove

protocol ether
  state absent initial final
  state registered
    state down initial
    state opening owed
    state up
      state flowing initial
      state full
    state closing owed
    state stuck owed
  state dying fair
  state closing_last owed
  out add(struct net_device *dev): absent -> down
  out del: down -> absent
  out del: up -> dying
  in open sleeps: down -> opening
  out opened: opening -> up
  out open_failed(long error): opening -> down
  in stop sleeps: up -> closing
  in stop: dying -> closing_last
  out stopped: closing -> down
  out stopped: closing_last -> absent
  in xmit(struct sk_buff *skb) room 1024: flowing -> same
  out queue_stop: flowing -> full
  out queue_wake: full -> flowing
  out rx(struct sk_buff *skb): up -> same
  in timeout: up -> stuck
  out reset_done: stuck -> up

protocol line
  state free initial final
  state enabled
  state masked
  out request: free -> masked
  out unmask: masked -> enabled
  out mask: enabled -> masked
  out release: masked -> free
  in irq head: enabled -> same
";

/// The machines of [`NIC`].
pub fn nic() -> Vec<Machine> {
    parse::machines("nic.chart", NIC).unwrap_or_else(|error| panic!("{error}"))
}
