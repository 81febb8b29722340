use super::*;
use crate::{examples, parse, stock};
use std::path::Path;

#[test]
fn numbers_follow_the_order_of_the_protocols() {
    let machines = examples::nic();
    let boxes = Boxes::new(&machines).unwrap();
    let number = |protocol: usize, name: &str| {
        let message = machines[protocol].message(name).unwrap();
        boxes.number(protocol, message).unwrap()
    };
    assert_eq!((number(0, "probe"), number(0, "suspend"), number(1, "open")), (0, 1, 5));
    assert_eq!((number(0, "probed"), number(0, "probe_failed")), (64, 65));
    assert_eq!(boxes.owner(number(2, "irq").into()), Some((2, machines[2].message("irq").unwrap())));
    assert_eq!((boxes.owner(63), boxes.owner(10_000)), (None, None));
}

#[test]
fn the_tables_step_as_the_machine_does() {
    let machines = examples::nic();
    let Sources { header, tables } = sources(&machines).unwrap();
    assert!(header.contains("\tBUS_PROBE_FAILED = 65,\n"));
    assert!(header.contains("static inline struct sk_buff *ether_xmit_skb(const struct active_message *m)"));
    assert!(
        header
            .contains("static inline void bus_probe_failed_set_error(struct active_message *m, long error)")
    );
    assert!(tables.contains("\t{ \"xmit\", 0, 1024 },\n"));
    assert!(tables.contains("\t{ \"irq\", ACTIVE_BOX_HEAD, 1 },\n"));
    assert!(tables.contains("\t{ \"bound.running\", ACTIVE_STATE_FAIR, 0x"));
    // The rows of the text are the rows of the machine.
    for machine in &machines {
        let begin = format!("static const u8 {}_next[][{}] = {{", machine.name(), machine.messages().len());
        let (_, rows) = tables.split_once(&begin).unwrap();
        let (rows, _) = rows.split_once("\n};").unwrap();
        for (state, row) in rows.lines().skip(1).enumerate() {
            let cells: Vec<usize> =
                row.split([',', '{', '}']).filter_map(|cell| cell.trim().parse().ok()).collect();
            let incoming = machine.incoming().count();
            let (mut ins, mut outs) = (0, incoming);
            for message in 0..machine.messages().len() {
                let column = if machine.is_in(message) { &mut ins } else { &mut outs };
                assert_eq!(cells[*column], machine.step(state, message).unwrap_or(255), "{row}");
                *column += 1;
            }
            assert_eq!(outs, cells.len());
        }
    }
}

#[test]
fn names_that_meet_in_c_and_too_many_messages_are_refused() {
    let text =
        "protocol a\n state s initial\n in b_c: s -> s\nprotocol a_b\n state s initial\n in c: s -> s\n";
    let machines = parse::machines("x", text).unwrap();
    assert_eq!(sources(&machines).unwrap_err(), "a.b_c and a_b.c would both be A_B_C in C; rename one");
    let many: String = (0..3)
        .map(|block| {
            let lines: String = (0..30).map(|at| format!(" in m{at}: s -> s\n")).collect();
            format!("protocol p{block}\n state s initial\n{lines}")
        })
        .collect();
    let machines = parse::machines("x", &many).unwrap();
    assert_eq!(
        sources(&machines).unwrap_err(),
        "all protocols together have 90 incoming messages; expected at most 64"
    );
}

/// `guardrail protocol header` writes the files again.
#[test]
fn the_committed_files_are_those_of_the_stock_protocols() {
    let made = sources(&stock::machines().unwrap()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../active");
    for (name, text) in [(HEADER, made.header), (TABLES, made.tables)] {
        let path = folder.join(name);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "active/{name} is old: run 'guardrail protocol header'");
    }
}
