use super::*;

const AT: u64 = 0xffff_8880_0000_1000;

fn holds(samples: Option<Samples>) -> Holds {
    let point =
        |symbol, role| HoldPoint { module: "m".into(), symbol, offset: 4, pair: 7, role, approach: false };
    let points = vec![point(1, 0), point(2, 1)];
    Holds::new(&Config { points, samples, tries: 4, first_millis: 100, spins: 1000, ..Config::default() })
}

fn side(pc: u64, rsp: u64, store: bool) -> MeetSide {
    MeetSide { pc, address: AT, size: 8, store, rsp, task: rsp, ..MeetSide::default() }
}

struct Clock(Instant);

impl Clock {
    fn new() -> Clock {
        Clock(Instant::now())
    }
    fn pass(&mut self, millis: u64) {
        self.0 += Duration::from_millis(millis);
    }
    fn come(&self, holds: &Holds, role: u8, side: MeetSide) -> Step {
        let arrival =
            Arrival { side, roles: &[(7, role)], sampled: false, locked: false, holdable: true, now: self.0 };
        holds.arrive(&arrival, |_, _| Some(1))
    }
}

const A: u64 = 0x104;
const B: u64 = 0x204;

#[test]
fn points_follow_the_symbols_of_their_module() {
    let holds = holds(None);
    holds.resolve(b"other", &[0, 0x100, 0x200]);
    assert_eq!(holds.at(A), (vec![], false));
    holds.resolve(b"m", &[0, 0x100, 0x200]);
    assert_eq!((holds.at(A).0, holds.at(B).0), (vec![(7, 0)], vec![(7, 1)]));
    holds.forget(0x100, 0x180);
    assert_eq!((holds.at(A).0, holds.at(B).0), (vec![], vec![(7, 1)]));
}

#[test]
fn sides_meet_and_both_run() {
    let (holds, mut clock) = (holds(None), Clock::new());
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)), (Verdict::Back.into(), None));
    clock.pass(5);
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)), (Verdict::Back.into(), None));
    let (verdict, met) = clock.come(&holds, 1, side(B, 2, false));
    assert_eq!(verdict, (Verdict::Go, Some(Side::Other)));
    let met = met.unwrap();
    assert_eq!((met.outcome, met.held.pc, met.other.pc), (MeetOutcome::Met, A, B));
    // The held side waits until the other side has run.
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
    assert_eq!(holds.ran(Side::Other, clock.0, |_, _| Some(1)), None);
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0, (Verdict::Go, Some(Side::Held)));
    let ran = holds.ran(Side::Held, clock.0, |_, _| Some(2)).unwrap();
    assert_eq!((ran.outcome, ran.values), (MeetOutcome::Ran, [Some(1), Some(1), Some(2)]));
    assert_eq!(holds.totals()[0].came, [0, 1]);
}

#[test]
fn the_held_side_stays_while_the_other_goes_on() {
    let holds = holds(None);
    let holds = Holds::new(&Config { linger_millis: 300, ..holds.config });
    let mut clock = Clock::new();
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
    assert_eq!(clock.come(&holds, 1, side(B, 2, false)).0, (Verdict::Go, Some(Side::Other)));
    assert_eq!(holds.ran(Side::Other, clock.0, |_, _| Some(1)), None);
    clock.pass(299);
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
    clock.pass(1);
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0, (Verdict::Go, Some(Side::Held)));
    assert_eq!(holds.ran(Side::Held, clock.0, |_, _| Some(2)).unwrap().outcome, MeetOutcome::Ran);
}

#[test]
fn tries_are_kept_for_the_times_when_the_other_side_is_near() {
    let begins =
        |role: usize| HoldPoint { offset: 0, approach: true, ..holds(None).config.points[role].clone() };
    let points = [holds(None).config.points, vec![begins(1)]].concat();
    let holds = Holds::new(&Config { points, ..holds(None).config });
    holds.resolve(b"m", &[0, 0x100, 0x200]);
    assert_eq!((holds.approaches(0x100), holds.approaches(0x200)), (vec![], vec![(7, 1)]));
    let mut clock = Clock::new();
    let softirq = MeetSide { preempt_count: 0x101, ..side(A, 2, true) };
    let mut come = |arrival, millis| {
        clock.pass(millis);
        clock.come(&holds, 0, arrival).0.0
    };
    // Half of the two tries is free.
    assert_eq!(come(side(A, 1, true), 0), Verdict::Back);
    assert_eq!(come(side(A, 1, true), 100), Verdict::Go);
    assert_eq!(come(softirq, 10_000), Verdict::Go);
    // The kinds of contexts take turns while the other side is near.
    let now = |passed: u64| Instant::now() + Duration::from_millis(passed);
    holds.approach(&vec![(7, 1)], now(10_100));
    assert_eq!(come(softirq, 0), Verdict::Back);
    assert_eq!(come(softirq, 100), Verdict::Go);
    holds.approach(&vec![(7, 1)], now(10_200));
    assert_eq!(come(side(A, 1, true), 1_000), Verdict::Go);
}

#[test]
fn an_approach_invites_each_kind_of_context_in_turn() {
    let (now, mut near) = (Instant::now(), approaches::Approaches::default());
    let arrival = |preempt_count| Arrival {
        side: MeetSide { preempt_count, ..side(A, 1, true) },
        roles: &[(7, 0)],
        sampled: false,
        locked: false,
        holdable: true,
        now,
    };
    let (process, softirq) = (arrival(1), arrival(0x101));
    near.meet(0, 1);
    near.meet(0, 0x101);
    assert!(!near.take(0, &process, now));
    near.come(1, now);
    assert!(near.take(0, &process, now) && !near.take(0, &process, now));
    assert!(near.take(0, &softirq, now) && !near.take(0, &softirq, now));
    near.come(1, now);
    assert!(!near.invite(0, &process, now + Duration::from_secs(5)) && near.invite(0, &process, now));
    (0..100).for_each(|_| near.come(1, now));
    assert!(!near.are_rare(1) && !near.invite(0, &process, now));
}

#[test]
fn a_pair_that_has_met_is_held_no_more_where_once_is_enough() {
    for once in [false, true] {
        let holds = Holds::new(&Config { once, ..holds(None).config });
        let mut clock = Clock::new();
        assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
        assert_eq!(clock.come(&holds, 1, side(B, 2, false)).0, (Verdict::Go, Some(Side::Other)));
        holds.ran(Side::Other, clock.0, |_, _| Some(1));
        assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0, (Verdict::Go, Some(Side::Held)));
        holds.ran(Side::Held, clock.0, |_, _| Some(2)).unwrap();
        clock.pass(10_000);
        let verdict = if once { Verdict::Go } else { Verdict::Back };
        assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, verdict);
    }
}

#[test]
fn only_the_wanted_side_is_held_and_met_on_another_cpu() {
    let holds = Holds::new(&Config { held_apart: Some(0), ..holds(None).config });
    let mut clock = Clock::new();
    assert_eq!(clock.come(&holds, 1, side(B, 2, false)).0.0, Verdict::Go);
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
    clock.pass(5);
    assert_eq!(clock.come(&holds, 1, side(B, 2, false)), (Verdict::Go.into(), None));
    let (verdict, met) = clock.come(&holds, 1, MeetSide { cpu: 1, ..side(B, 2, false) });
    assert_eq!(verdict, (Verdict::Go, Some(Side::Other)));
    assert_eq!(met.unwrap().outcome, MeetOutcome::Met);
}

#[test]
fn nobody_comes_and_time_is_up() {
    let (holds, mut clock) = (holds(None), Clock::new());
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
    clock.pass(100);
    let (verdict, meet) = clock.come(&holds, 0, side(A, 1, true));
    assert_eq!((verdict, meet.unwrap().outcome), (Verdict::Go.into(), MeetOutcome::Alone));
    // The guest continues for a while. The other side may be held at once.
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Go);
    assert_eq!(clock.come(&holds, 1, side(B, 1, true)).0.0, Verdict::Back);
}

#[test]
fn other_bytes_and_two_reads_are_no_meeting() {
    let (holds, clock) = (holds(None), Clock::new());
    assert_eq!(clock.come(&holds, 0, side(A, 1, false)).0.0, Verdict::Back);
    assert_eq!(clock.come(&holds, 1, side(B, 2, false)), (Verdict::Go.into(), None));
    let beside = MeetSide { address: AT + 8, ..side(B, 2, true) };
    assert_eq!(clock.come(&holds, 1, beside), (Verdict::Go.into(), None));
    assert_eq!(clock.come(&holds, 0, side(A, 3, true)), (Verdict::Go.into(), None));
}

#[test]
fn two_locked_accesses_are_no_meeting() {
    let (holds, clock) = (holds(None), Clock::new());
    let come = |role, side, locked| {
        let roles = [(7, role)];
        let arrival = Arrival { side, roles: &roles, sampled: false, locked, holdable: true, now: clock.0 };
        holds.arrive(&arrival, |_, _| Some(1)).0
    };
    assert_eq!(come(0, side(A, 1, true), true).0, Verdict::Back);
    assert_eq!(come(1, side(B, 2, true), true), Verdict::Go.into());
    assert_eq!(come(1, side(B, 2, true), false), (Verdict::Go, Some(Side::Other)));
}

#[test]
fn tries_and_spins_are_bounded() {
    let (holds, mut clock) = (holds(None), Clock::new());
    let mut tries = 0;
    for _ in 0..10 {
        clock.pass(5000);
        let (verdict, _) = clock.come(&holds, 0, side(A, 1, true));
        tries += u32::from(verdict.0 == Verdict::Back);
        clock.pass(5000);
        clock.come(&holds, 0, side(A, 1, true));
    }
    assert_eq!(tries, 2);
    assert_eq!(clock.come(&holds, 1, side(B, 1, true)).0.0, Verdict::Back);
    let spins =
        (0..2000).take_while(|_| clock.come(&holds, 1, side(B, 1, true)).0.0 == Verdict::Back).count();
    assert_eq!(spins, 1000);
}

#[test]
fn a_held_context_that_never_returns_is_given_up() {
    let (holds, mut clock) = (holds(None), Clock::new());
    assert_eq!(clock.come(&holds, 0, side(A, 1, true)).0.0, Verdict::Back);
    clock.pass(1500);
    let (verdict, meet) = clock.come(&holds, 1, side(B, 2, true));
    assert_eq!((verdict, meet.unwrap().outcome), (Verdict::Back.into(), MeetOutcome::Alone));
}

#[test]
fn a_sampled_access_sees_any_other_that_conflicts() {
    let samples = Samples { one_in: 1, seed: 3, millis: 50, pause_millis: 100 };
    let (holds, mut clock) = (holds(Some(samples)), Clock::new());
    let come = |now, value| {
        let arrival = Arrival {
            side: side(A, 1, false),
            roles: &[],
            sampled: true,
            locked: false,
            holdable: true,
            now,
        };
        holds.arrive(&arrival, |_, _| Some(value))
    };
    assert!(holds.at(A).1);
    assert_eq!(come(clock.0, 1).0.0, Verdict::Back);
    assert!(holds.watching());
    assert_eq!(holds.accessed(&side(B, 0, false), clock.0, |_, _| None), None);
    let met = holds.accessed(&side(B, 0, true), clock.0, |_, _| Some(2)).unwrap();
    assert_eq!((met.outcome, met.pair, met.other.pc), (MeetOutcome::Met, None, B));
    assert!(!holds.watching());
    // A pause, then a hold in which the value changes without an access of the driver.
    assert_eq!(come(clock.0, 1).0.0, Verdict::Go);
    clock.pass(100);
    assert_eq!(come(clock.0, 1).0.0, Verdict::Back);
    clock.pass(50);
    assert_eq!(come(clock.0, 9).1.unwrap().outcome, MeetOutcome::Changed);
}
