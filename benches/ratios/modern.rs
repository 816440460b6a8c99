//! Measures clients of revision 2026-07-28 against those of the one before, in front of the same taskgate.

use crate::{
    Result,
    load::{Load, Work},
    process::Server,
    report::{Row, Target},
    scenarios::{Bench, CONNECTIONS, FEW, SMALL},
};

const LABELS: [&str; 2] = ["2026-07-28", "2025-11-25"];
/// How many connections make tasks of slow calls: enough that waiting does not bound the rate.
const MANY: usize = 256;
/// Modern calls become tasks at once.
const AT_ONCE: &str = "[upstream.tools.\"*\"]\ntask_after = \"0s\"\n";
/// Modern calls become tasks while they run, and as many run at once as come.
const SOON: &str = "[upstream.tools.\"*\"]\ntask_after = \"1ms\"\nmax_running = 1000000\n";

impl Bench {
    pub async fn modern(&self) -> Result<Vec<Row>> {
        let gate = Server::taskgate(&self.upstream)?;
        let row = self.generations(&gate, "plain `tools/call`", CONNECTIONS, Work::Call(SMALL)).await?;
        Ok(vec![row.unit("calls/s").target(Target::AtLeast(0.95))])
    }

    /// Compares how often a task with a small result can be asked for; the modern answer has the result in it.
    pub async fn modern_get(&self) -> Result<Vec<Row>> {
        let gate = Server::taskgate_with(&self.upstream, "", AT_ONCE)?;
        let mut modern = self.side(&gate, Load::modern(&gate, CONNECTIONS, Work::Create).await?);
        let mut legacy = self.side(&gate, Load::one_session(&gate, CONNECTIONS, Work::Create).await?);
        modern.fill(FEW).await?;
        legacy.fill(FEW).await?;
        let pairs = self.pairs(&mut modern, &mut legacy).await?;
        let row = Row::new(format!("`tasks/get`, {CONNECTIONS} connections"), LABELS, &pairs, |s| s.rate);
        Ok(vec![row.unit("answers/s").target(Target::AtLeast(0.95))])
    }

    pub async fn modern_create(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (what, connections, work, behind) in [
            ("creating a task, its call included", CONNECTIONS, Work::Create, AT_ONCE),
            ("making a task of a call of 20 ms", MANY, Work::CreateSlow, SOON),
        ] {
            let gate = Server::taskgate_with(&self.upstream, "", behind)?;
            let row = self.generations(&gate, what, connections, work).await?;
            rows.push(row.unit("calls/s").target(Target::AtLeast(0.90)));
        }
        Ok(rows)
    }

    /// Compares the rates of both generations, each with connections of its own.
    async fn generations(&self, gate: &Server, what: &str, connections: usize, work: Work) -> Result<Row> {
        let mut modern = self.side(gate, Load::modern(gate, connections, work.clone()).await?);
        let mut legacy = self.side(gate, Load::sessions(gate, connections, work).await?);
        let pairs = self.pairs(&mut modern, &mut legacy).await?;
        Ok(Row::new(format!("{what}, {connections} connections"), LABELS, &pairs, |s| s.rate))
    }
}
