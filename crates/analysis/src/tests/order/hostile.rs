//! Words that no tracer wrote, between some that one might have written.

use super::guest::*;
use crate::tests::{hostile::segment, rng::Rng};

fn run(seed: u64, rounds: usize) -> String {
    let mut rng = Rng(seed);
    let mut g = Guest::new();
    let (names, hooks) = (g.kernel.names(), 8);
    let callers = ["vfs_read", "call_timer_fn.isra.0", "__handle_irq_event_percpu", "process_one_work", "up"];
    for _ in 0..rounds {
        let mut pick = |n: u64| rng.next() % n;
        let who = match pick(3) {
            0 => task(pick(4)),
            1 => softirq(pick(4)),
            _ => hardirq(pick(4)),
        };
        let key = HEAP + pick(4) * 64;
        let name = names[pick(names.len() as u64) as usize];
        let args = [key, key, pick(100)];
        let (number, at) = (pick(10), pick(100));
        let hook = names[pick(hooks) as usize];
        let by = g.by(&who);
        match number {
            0 | 1 => by.enter(callers[pick(5) as usize], &args),
            2 => by.call(name, &args),
            3 => by.back(pick(3)),
            4 => by.ret(pick(3)),
            5 => by.jump(name, &args),
            6 => by.hook(hook, who.rsp - pick(3) * 8, &args),
            7 => by.hook_return(hook, who.rsp - pick(3) * 8, key),
            8 => by.write(at),
            _ => by.words(&segment(&mut rng)),
        };
    }
    let seen = g.seen.borrow();
    format!("{:?} {:?} {:?} {:?}", seen.writes, seen.log, seen.steps, seen.entries)
}

#[test]
fn any_words_are_survived() {
    for seed in 1..30u64 {
        assert!(!run(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 400).is_empty());
    }
}

#[test]
fn equal_words_give_equal_order() {
    assert_eq!(run(77, 3000), run(77, 3000));
}
