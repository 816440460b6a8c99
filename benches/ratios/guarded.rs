//! Measures what identities and the audit log cost: taskgate with signed tokens and an audit file against taskgate with
//! neither. Limits and rates are always on. Both sides get the same requests, token included.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    Result,
    load::{Load, Work},
    process::Server,
    report::{Row, Target},
    scenarios::{Bench, CONNECTIONS, FEW, LARGE, SMALL},
    side::Sample,
};

const LABELS: [&str; 2] = ["guarded", "open"];
const VALID_FOR: Duration = Duration::from_hours(6);

/// An issuer's key set, one of its tokens, and a folder for the audit log.
struct Guard {
    folder: TempDir,
    authorization: HeaderValue,
}

impl Guard {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?;
        let key = EncodingKey::from_ec_der(key.as_ref());
        let jwk = Jwk::from_encoding_key(&key, Algorithm::ES256)?;
        fs::write(folder.path().join("jwks.json"), json!({ "keys": [jwk] }).to_string())?;
        let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + VALID_FOR;
        let claims = json!({ "iss": "https://issuer.example", "aud": "bench", "sub": "bench", "exp": end.as_secs() });
        let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &key)?;
        Ok(Self { folder, authorization: HeaderValue::from_str(&format!("Bearer {token}"))? })
    }

    /// Starts a taskgate with tokens and the audit log on.
    fn guarded(&self, upstream: &Server) -> Result<Server> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let auth = format!(
            "[auth]\nmode = \"jwt\"\nissuer = \"https://issuer.example\"\naudience = [\"bench\"]\njwks = {:?}\n\
             [audit]\nto = \"file\"\nfile = {:?}\n",
            path("jwks.json"),
            path("audit.jsonl")
        );
        Ok(self.with_token(Server::taskgate_with(upstream, &auth, "")?))
    }

    /// Starts a taskgate with neither, which does not forward the token either.
    fn open(&self, upstream: &Server) -> Result<Server> {
        Ok(self.with_token(Server::taskgate_with(upstream, "", "forward_authorization = false\n")?))
    }

    fn with_token(&self, mut server: Server) -> Server {
        server.authorization = Some(self.authorization.clone());
        server
    }
}

impl Bench {
    pub async fn guarded(&self) -> Result<Vec<Row>> {
        let guard = Guard::new()?;
        let work = [
            ("plain `tools/call`, 32 connections", Work::Call(SMALL), "calls/s"),
            ("256 KiB results, 32 connections", Work::Call(LARGE), "calls/s"),
            ("creating a task, its call included, 32 connections", Work::Create, "calls/s"),
        ];
        let mut rows = Vec::new();
        for (what, work, unit) in work {
            rows.push(self.compare(&guard, what, CONNECTIONS, work, |s| s.rate).await?.unit(unit).target(AT_LEAST));
        }
        rows.push(self.guarded_get(&guard).await?);
        Ok(rows)
    }

    pub async fn guarded_latency(&self) -> Result<Vec<Row>> {
        let guard = Guard::new()?;
        let row =
            self.compare(&guard, "plain `tools/call`, 1 connection, p50", 1, Work::Call(SMALL), |s| s.p50).await?;
        Ok(vec![row.unit("µs").target(AT_MOST)])
    }

    pub async fn guarded_start(&self) -> Result<Vec<Row>> {
        let guard = &Guard::new()?;
        let [guarded, open] = [Guard::guarded, Guard::open].map(|start| move || start(guard, &self.upstream));
        let [memory, own, time] = self.starts(LABELS, guarded, open).await?;
        Ok(vec![memory.target(AT_MOST), own, time.target(AT_MOST)])
    }

    async fn compare(
        &self,
        guard: &Guard,
        what: &'static str,
        connections: usize,
        work: Work,
        value: fn(&Sample) -> f64,
    ) -> Result<Row> {
        let servers = [guard.guarded(&self.upstream)?, guard.open(&self.upstream)?];
        let mut ours = self.side(&servers[0], Load::sessions(&servers[0], connections, work.clone()).await?);
        let mut open = self.side(&servers[1], Load::sessions(&servers[1], connections, work).await?);
        let pairs = self.pairs(&mut ours, &mut open).await?;
        Ok(Row::new(what, LABELS, &pairs, value))
    }

    async fn guarded_get(&self, guard: &Guard) -> Result<Row> {
        let servers = [guard.guarded(&self.upstream)?, guard.open(&self.upstream)?];
        let load = |server| Load::one_session(server, CONNECTIONS, Work::Create);
        let mut ours = self.side(&servers[0], load(&servers[0]).await?);
        let mut open = self.side(&servers[1], load(&servers[1]).await?);
        ours.fill(FEW).await?;
        open.fill(FEW).await?;
        let pairs = self.pairs(&mut ours, &mut open).await?;
        Ok(Row::new("`tasks/get`, 32 connections", LABELS, &pairs, |s| s.rate).unit("answers/s").target(AT_LEAST))
    }
}

/// Within 10 percent.
const AT_LEAST: Target = Target::AtLeast(0.90);
const AT_MOST: Target = Target::AtMost(1.10);
