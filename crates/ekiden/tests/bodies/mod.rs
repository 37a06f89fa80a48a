//! Bodies of requests, valid and nearly valid, as text: clients write JSON in every order, spacing and escape there is.

use ekiden::store::Entropy;

/// A body is damaged in one of six: most must be valid, or only refusals would be compared.
const DAMAGED_PERCENT: u32 = 15;

/// Makes bodies.
pub(crate) struct Bodies {
    entropy: Entropy,
    /// How many fields are written as hardly any client would, in percent.
    odd: u32,
    is_damaged: bool,
}

impl Bodies {
    pub(crate) fn new(mut entropy: Entropy) -> Self {
        let odd = *entropy.pick(&[0, 0, 1, 5, 25]);
        Self { entropy, odd, is_damaged: false }
    }

    /// Whether the last body is made of its items as they are.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_damaged
    }

    pub(crate) fn some(&mut self, item: impl Fn(&mut Self) -> String) -> Vec<String> {
        (0..self.entropy.below(4)).map(|_| item(self)).collect()
    }

    /// A task with nothing odd beside its payload.
    pub(crate) fn plain_task(&mut self) -> String {
        self.odd = 0;
        let payload = self.value(0);
        let (space, pool) = (self.space(), self.entropy.below(3));
        format!(r#"{{"task_type":"k",{space}"pool":"p{pool}","payload":{space}{payload}{space}}}"#)
    }

    /// The good end of an attempt, with its result or without.
    pub(crate) fn success(&mut self) -> String {
        let result = if self.entropy.chance(20) { String::new() } else { format!(r#","result":{}"#, self.value(0)) };
        format!(r#"{{"settlements":[{{"task_id":"t","token":1,"verdict":{{"outcome":"succeeded"{result}}}}}]}}"#)
    }

    pub(crate) fn batch(&mut self, tasks: &[String]) -> String {
        let list = self.list(tasks);
        let body = self.object(&[("tasks", list)], 2);
        self.damaged(body)
    }

    pub(crate) fn settle(&mut self, settlements: &[String]) -> String {
        let mut fields = vec![("settlements", self.list(settlements))];
        if self.entropy.chance(40) {
            fields.push(("claim", self.claim()));
        }
        let body = self.object(&fields, 2);
        self.damaged(body)
    }

    pub(crate) fn task(&mut self) -> String {
        let mut fields = vec![("task_type", self.name())];
        for (name, percent) in [
            ("payload", 80),
            ("id", 30),
            ("op_id", 20),
            ("pool", 50),
            ("payload_encoding", 5),
            ("title", 5),
            ("delay_ms", 3),
            ("held", 3),
            ("labels", 3),
            ("depends_on", 3),
            ("policy", 3),
        ] {
            if self.entropy.chance(percent) {
                fields.push((name, self.field(name)));
            }
        }
        self.object(&fields, 1)
    }

    pub(crate) fn settlement(&mut self) -> String {
        let verdict = self.verdict();
        let mut fields = vec![("task_id", self.name()), ("token", self.number()), ("verdict", verdict)];
        if self.entropy.chance(40) {
            fields.push(("id", self.field("op_id")));
        }
        self.object(&fields, 1)
    }

    fn verdict(&mut self) -> String {
        let outcome =
            *self.entropy.pick(&["succeeded", "succeeded", "succeeded", "failed", "crashed", "timed_out", "snoozed"]);
        let mut fields = vec![("outcome", format!("\"{outcome}\""))];
        match outcome {
            "failed" | "crashed" => fields.push(("error", self.string())),
            "snoozed" => fields.push(("delay_ms", self.number())),
            "succeeded" if self.entropy.chance(70) => fields.push(("result", self.value(0))),
            _ => {}
        }
        if self.entropy.chance(self.odd) {
            let name =
                *self.entropy.pick(&["result", "result_encoding", "error", "permanent", "retry_after_ms", "stage"]);
            let value = if self.entropy.chance(50) { "null".to_owned() } else { self.field(name) };
            fields.push((name, value));
        }
        self.object(&fields, 1)
    }

    fn claim(&mut self) -> String {
        let pools: Vec<String> = self.some(Self::name);
        let types: Vec<String> = self.some(Self::name);
        let mut fields = vec![("runner", self.name()), ("task_types", self.list(&types))];
        if self.entropy.chance(50) {
            fields.push(("pools", self.list(&pools)));
        }
        for name in ["limit", "wait_ms"] {
            if self.entropy.chance(50) {
                fields.push((name, self.number()));
            }
        }
        self.object(&fields, 1)
    }

    /// A value for a field of this name, mostly of its type.
    fn field(&mut self, name: &str) -> String {
        if self.entropy.chance(self.odd) {
            return if self.entropy.chance(50) { "null".to_owned() } else { self.value(2) };
        }
        match name {
            "payload" | "result" => self.value(0),
            "op_id" => format!("\"0192aaaa-0000-7000-8000-{:012x}\"", self.entropy.below(1 << 40)),
            "payload_encoding" | "result_encoding" => {
                (*self.entropy.pick(&["\"json\"", "\"text\"", "\"base64\""])).to_owned()
            }
            "delay_ms" | "retry_after_ms" => self.number(),
            "held" | "permanent" => (*self.entropy.pick(&["true", "false"])).to_owned(),
            "labels" => format!("{{{}:{}}}", self.string(), self.string()),
            "depends_on" => format!("[{}]", self.name()),
            "policy" => r#"{"attempts_max":3}"#.to_owned(),
            "stage" => "\"exited\"".to_owned(),
            _ => self.name(),
        }
    }

    /// Fields in any order, sometimes one twice, unknown, null or missing.
    fn object(&mut self, fields: &[(&str, String)], odd_share: u32) -> String {
        let mut fields: Vec<(String, String)> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        for at in (1..fields.len()).rev() {
            let other = self.entropy.below(at + 1);
            fields.swap(at, other);
        }
        if self.entropy.chance(self.odd / odd_share / 2) {
            let at = self.entropy.below(fields.len());
            match self.entropy.below(5) {
                0 => fields.push(fields[at].clone()),
                1 => fields.push(("unknown".to_owned(), self.value(2))),
                2 => fields[at].1 = "null".to_owned(),
                3 => drop(fields.remove(at)),
                _ => {
                    // The same name, with a letter escaped.
                    let name = &fields[at].0;
                    fields[at].0 = format!("\\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..]);
                }
            }
        }
        let parts: Vec<String> = fields
            .into_iter()
            .map(|(name, value)| {
                format!("{}\"{name}\"{}:{}{value}{}", self.space(), self.space(), self.space(), self.space())
            })
            .collect();
        format!("{{{}}}", parts.join(","))
    }

    fn list(&mut self, items: &[String]) -> String {
        let items: Vec<String> = items.iter().map(|item| format!("{}{item}{}", self.space(), self.space())).collect();
        format!("[{}]", items.join(","))
    }

    fn space(&mut self) -> &'static str {
        if self.entropy.chance(85) { "" } else { self.entropy.pick::<&str>(&[" ", "\n", "\t", "\r\n", "  "]) }
    }

    fn name(&mut self) -> String {
        if self.entropy.chance(self.odd) {
            return self.string();
        }
        (*self.entropy.pick(&["\"k\"", "\"p-1\"", "\"受信箱\"", "\"a/b@c#D\"", "\"k\\u0062\""])).to_owned()
    }

    fn string(&mut self) -> String {
        let parts = [
            "a",
            "é",
            "受",
            "🦀",
            "\\n",
            "\\\"",
            "\\\\",
            "\\/",
            "\\u0041",
            "\\u00e9",
            "\\ud83e\\udd80",
            "\\ud800",
            "\\u0000",
            "\u{7f}",
            " ",
            "</script>",
            "",
        ];
        let text: String = (0..self.entropy.below(5)).map(|_| *self.entropy.pick(&parts)).collect();
        format!("\"{text}\"")
    }

    fn number(&mut self) -> String {
        if !self.entropy.chance(self.odd) {
            return self.entropy.below(60_001).to_string();
        }
        let odd = [
            "-1",
            "-0",
            "0",
            "00",
            "01",
            "1.0",
            "1e3",
            "1E+2",
            "9007199254740993",
            "18446744073709551615",
            "18446744073709551616",
            "1e400",
            "4294967296",
            "0.1",
            "1.",
            "+1",
        ];
        (*self.entropy.pick(&odd)).to_owned()
    }

    /// Any JSON.
    fn value(&mut self, depth: usize) -> String {
        let simple = depth > 4;
        match self.entropy.below(if simple { 5 } else { 8 }) {
            0 => "null".to_owned(),
            1 => (*self.entropy.pick(&["true", "false"])).to_owned(),
            2 => self.number(),
            3 | 4 => self.string(),
            5 => {
                let items = (0..self.entropy.below(4)).map(|_| self.value(depth + 1)).collect::<Vec<_>>();
                self.list(&items)
            }
            6 if self.entropy.chance(3) => format!("{}1{}", "[".repeat(300), "]".repeat(300)),
            _ => {
                let fields = (0..self.entropy.below(4)).map(|_| format!("{}:{}", self.string(), self.value(depth + 1)));
                let fields: Vec<String> = fields.collect();
                format!("{{{}}}", fields.join(","))
            }
        }
    }

    fn damaged(&mut self, body: String) -> String {
        self.is_damaged = self.entropy.chance(DAMAGED_PERCENT);
        if !self.is_damaged {
            return body;
        }
        let mut bytes = body.into_bytes();
        let at = self.entropy.below(bytes.len());
        match self.entropy.below(3) {
            0 => bytes[at] = *self.entropy.pick(br#" "\{}[]:,019-.n"#),
            1 => bytes.insert(at, *self.entropy.pick(br#" "\{}[]:,019-.n"#)),
            _ => bytes.truncate(at),
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
