import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type Config,
  ConfigError,
  configWarnings,
  type Environment,
  isLoopback,
  loadConfig,
  type Overrides,
  readConfig,
  tokenSha256,
} from "./config.ts";

const SECRET = "correct-horse-battery-staple";

describe("what wins", () => {
  test("without file, environment or command line everything has its default", () => {
    const config = read();
    expect(config.server).toEqual({
      host: "127.0.0.1",
      port: 7070,
      data_dir: ".tenure",
      postgres_uri: "",
      postgres_connections_max: 21,
      secret_key_file: "",
      advertise_url: "",
      allowed_origins: [],
      trusted_proxies: [],
      request_timeout_seconds: 30,
      connections_max: 20_000,
      connections_per_address_max: 5_000,
      tls: {
        cert_file: "",
        key_file: "",
        client_ca_file: "",
        client_auth: "nodes",
        ca_file: "",
        peer_cert_file: "",
        peer_key_file: "",
        terminated_by_proxy: false,
      },
    });
    expect(config.scheduler.phase2.redis).toEqual({
      mode: "single",
      url: "",
      cluster_urls: [],
      key_prefix: "tenure",
      ca_file: "",
      cert_file: "",
      key_file: "",
    });
    expect(config.auth).toEqual({
      tokens: [],
      peer_token: "",
      console_session_seconds: 43_200,
      console_idle_seconds: 3600,
      offline_max_seconds: 3600,
    });
    expect(config.scheduler.phase2).not.toHaveProperty("dlq_min_idle_ms", expect.anything());
  });

  test("file over default, environment over file, command line over environment", () => {
    const text = "[server]\nport = 1001\nhost = 'localhost'\ndata_dir = 'file'";
    const env = { TENURE_SERVER_PORT: "1002", TENURE_SERVER_DATA_DIR: "env" };

    expect(read({ text }).server).toMatchObject({ port: 1001, data_dir: "file" });
    expect(read({ text, env }).server).toMatchObject({ port: 1002, data_dir: "env" });
    expect(read({ text, env, overrides: { port: "1003" } }).server).toMatchObject({
      host: "localhost",
      port: 1003,
      data_dir: "env",
    });
    expect(read({ text, env, overrides: { port: 0, data_dir: "cli" } }).server).toMatchObject({
      port: 0,
      data_dir: "cli",
    });
  });

  test("every kind of value can come from the environment", () => {
    const config = read({
      env: {
        TENURE_SCHEDULER_PHASE2_ENABLED: "true",
        TENURE_SCHEDULER_PHASE2_REDIS_MODE: "cluster",
        TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: "redis://a:1, redis://b:2",
        TENURE_SCHEDULER_PHASE2_REDIS_URL: "redis://:pw@c:3/0",
        TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: "7",
        TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "false",
        TENURE_AUTH_PEER_TOKEN: SECRET,
      },
    });
    expect(config.scheduler.phase2).toMatchObject({
      enabled: true,
      redis: {
        mode: "cluster",
        cluster_urls: ["redis://a:1", "redis://b:2"],
        url: "redis://:pw@c:3/0",
      },
    });
    expect(config.job_timeout.attempts_max).toBe(7);
    expect(config.membership.mass_loss_brake).toBe(false);
    expect(config.auth.peer_token).toBe(SECRET);
  });

  test("POSTGRES_URI is heard, and our own variable is heard more", () => {
    const shared = { POSTGRES_URI: "postgres://shared/db" };
    const own = { TENURE_SERVER_POSTGRES_URI: "postgresql://own/db" };
    expect(read({ env: shared }).server.postgres_uri).toBe("postgres://shared/db");
    expect(read({ env: { ...own, ...shared } }).server.postgres_uri).toBe("postgresql://own/db");
  });

  test("an empty variable leaves what the file says", () => {
    const text = "[server]\nport = 9000\npostgres_uri = 'postgres://db/x'";
    const env = { POSTGRES_URI: "", TENURE_SERVER_POSTGRES_URI: "", TENURE_SERVER_PORT: "" };
    expect(read({ text, env }).server).toMatchObject({
      port: 9000,
      postgres_uri: "postgres://db/x",
    });
  });
});

describe("one message names every problem", () => {
  test("a typo, a wrong type and a bad relation", () => {
    const error = refusal({
      text: `
        [server]
        prot = 8080
        [job_timeout]
        attempts_max = "three"
        [nonce]
        hold_ttl_ms = 5000`,
    });
    expect(error.problems).toEqual([
      "tenure.toml: server.prot is not a setting; did you mean server.port?",
      "tenure.toml: job_timeout.attempts_max must be a whole number from 1 to 100",
      expect.stringMatching(
        /^nonce\.hold_ttl_ms must be at least nonce\.lease_ttl_ms: .* \(nonce\.hold_ttl_ms = 5000 from tenure\.toml, nonce\.lease_ttl_ms = 10000 by default\)$/,
      ),
    ]);
    expect(error.message).toMatch(/^The configuration has 3 problems:\n {2}- tenure\.toml: server/);
    for (const problem of error.problems) expect(error.message).toContain(problem);
  });

  test("all three sources, each named", () => {
    const error = refusal({
      text: "[limits]\npayload_bytes = 0",
      env: { TENURE_JOBS_QUEUE_MAX: "many", TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "yes" },
      overrides: { port: "http" },
    });
    expect(error.problems).toEqual([
      "--port: server.port must be a whole number from 0 to 65535",
      "TENURE_JOBS_QUEUE_MAX: jobs.queue_max must be a whole number from 1 to 1000000",
      "TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: membership.mass_loss_brake must be true or false",
      "tenure.toml: limits.payload_bytes must be a whole number from 1 to 67108864",
    ]);
  });

  test("a single problem is one sentence", () => {
    expect(refusal({ overrides: { port: "70000" } }).message).toBe(
      "The configuration has a problem: --port: server.port must be a whole number from 0 to 65535",
    );
  });

  test("a relation that reads a refused value is not judged against its default", () => {
    const text = "[limits]\nws_frame_bytes = '4MB'\npayload_bytes = 2000000";
    expect(problems({ text })).toEqual([
      "tenure.toml: limits.ws_frame_bytes must be a whole number from 1024 to 134217728",
    ]);
  });
});

describe("names that mean nothing", () => {
  test.each([
    ["[servr]\nport = 1", "[servr] is not a section; did you mean [server]?"],
    ["[redis]\nurl = ''", "[redis] is not a section; did you mean [scheduler.phase2.redis]?"],
    ["[[scheduler.fase2]]", "[scheduler.fase2] is not a section; did you mean [scheduler.phase2]?"],
    ["[zzzzzz]", "[zzzzzz] is not a section"],
    ["port = 1", "port is not a setting; did you mean server.port?"],
    [
      "[server]\nattempts_max = 1",
      "server.attempts_max is not a setting; did you mean job_timeout.attempts_max?",
    ],
    [
      "[nonce]\nlease_ttl = 1",
      "nonce.lease_ttl is not a setting; did you mean nonce.lease_ttl_ms?",
    ],
    ["[nonce]\nconstructor = 1", "nonce.constructor is not a setting"],
    ["server = 7070", "server is a section: write [server] and its settings below"],
  ])("%j", (text, sentence) => {
    expect(problems({ text })).toEqual([`tenure.toml: ${sentence}`]);
  });

  test.each([
    ["TENURE_SERVER_PROT", "; did you mean TENURE_SERVER_PORT?"],
    ["TENURE_PORT", "; did you mean TENURE_SERVER_PORT?"],
    ["TENURE_TOKENZ", "; did you mean TENURE_TOKENS?"],
    ["TENURE_AUTH_TOKENS", "; did you mean TENURE_TOKENS?"],
    ["TENURE_QQQQ", ""],
  ])("%s", (name, suggestion) => {
    expect(problems({ env: { [name]: "1" } })).toEqual([
      `${name}: no setting has this variable${suggestion}`,
    ]);
  });

  test("variables of others are none of our business", () => {
    const env = {
      TENURE_URL: "http://x",
      TENURE_TOKEN: "t",
      TENURE_DEPLOYMENT_ID: "d",
      TENURE_FENCING_TOKEN: "4",
      TENURE_FAILPOINTS: "f",
      TENURE_FAILPOINTS_FILE: "f",
      TENURE_TEST_ANYTHING: "1",
      PATH: "/bin",
    };
    expect(read({ env })).toEqual(read());
  });
});

describe("what a value must look like", () => {
  test.each([
    ["[server]\nport = '7070'", "server.port must be a whole number from 0 to 65535"],
    ["[server]\nport = 70.5", "server.port must be a whole number from 0 to 65535"],
    ["[server.port]\nx = 1", "server.port must be a whole number from 0 to 65535"],
    [
      "[server]\npostgres_uri = 'mysql://db'",
      "server.postgres_uri must be a URL that starts with postgres:// or postgresql://, or be empty",
    ],
    [
      "[server]\nallowed_origins = ['https://a.example', 'https://b.example/path']",
      'server.allowed_origins entry 2 must be an origin such as "https://console.example.com", without a path',
    ],
    [
      "[scheduler.phase2]\ninstance_id = 'a{b}'",
      "scheduler.phase2.instance_id must be 1 to 128 of the characters A-Z a-z 0-9 . _ : @ / -",
    ],
    [
      "[scheduler.phase2]\ndlq_max_deliveries = 0",
      "scheduler.phase2.dlq_max_deliveries must be a whole number from 1 to 1000",
    ],
    [
      "[scheduler.phase2.redis]\nmode = 'clustre'",
      "scheduler.phase2.redis.mode must be one of single, cluster; did you mean cluster?",
    ],
    [
      "[scheduler.phase2.redis]\nurl = 'redis:6379'",
      "scheduler.phase2.redis.url must be a URL that starts with redis:// or rediss://, or be empty",
    ],
    [
      "[nonce]\nlease_ttl_ms = 2999",
      "nonce.lease_ttl_ms must be a whole number from 3000 to 2147483647",
    ],
    ["[membership]\nmass_loss_brake = 'true'", "membership.mass_loss_brake must be true or false"],
  ])("%j", (text, sentence) => {
    expect(problems({ text })).toEqual([`tenure.toml: ${sentence}`]);
  });

  test("a syntax error is one sentence with its place, and quotes nothing of the file", () => {
    const error = refusal({ text: `[auth]\npeer_token = ${SECRET}\n` });
    expect(error.problems).toEqual(["tenure.toml: line 2, column 14: invalid value"]);
  });
});

describe("relations between settings", () => {
  const good = "[scheduler.phase2]\nenabled = true\nredis.url = 'redis://r'";

  test.each([
    ["[server]\nhost = '0.0.0.0'", "non-loopback bind without auth"],
    [
      "[server.tls]\ncert_file = 'c'",
      "server.tls.cert_file and server.tls.key_file must be set together",
    ],
    ["[server.tls]\nclient_ca_file = 'c'", "server.tls.cert_file must be set when"],
    ["[server.tls]\nclient_auth = 'all'", "server.tls.client_ca_file must be set when"],
    [
      "[server.tls]\npeer_key_file = 'k'",
      "server.tls.peer_cert_file and server.tls.peer_key_file must be set together",
    ],
    [
      "[server]\nadvertise_url = 'http://localhost'\ntls.cert_file = 'c'\ntls.key_file = 'k'",
      "server.advertise_url must start with https:// when server.tls.cert_file is set",
    ],
    [
      `${good}\nredis.key_file = 'k'`,
      "scheduler.phase2.redis.cert_file and scheduler.phase2.redis.key_file must be set together",
    ],
    [`${good}\nredis.ca_file = 'c'`, "the URLs of Redis must start with rediss:// when"],
    ["[scheduler.phase2]\nenabled = true", "scheduler.phase2.redis.url must be set"],
    [`${good}\nredis.mode = 'cluster'`, "scheduler.phase2.redis.cluster_urls must be set"],
    [
      "[scheduler.phase2]\nowner_ttl_seconds = 14",
      "scheduler.phase2.owner_ttl_seconds must be at least",
    ],
    ["[scheduler.phase2]\nstream_maxlen = 63", "scheduler.phase2.stream_count must be at most"],
    [
      "[scheduler.phase2.node_snapshot]\nrefresh_interval_ms = 15000",
      "scheduler.phase2.node_snapshot.presence_ttl_seconds must be more than 3 ×",
    ],
    [
      "[scheduler.phase2.node_snapshot]\nremove_stale_after_seconds = 45",
      "scheduler.phase2.node_snapshot.remove_stale_after_seconds must be more than",
    ],
    ["[scheduler]\naffinity_wait_ms = 10000", "scheduler.affinity_wait_ms must be less than"],
    ["[nonce]\nhold_ttl_ms = 9999", "nonce.hold_ttl_ms must be at least"],
    ["[limits]\npayload_bytes = 1048576", "limits.payload_bytes must be less than"],
    ["[limits]\nresult_bytes = 1048576", "limits.result_bytes must be less than"],
  ])("%j is refused", (text, beginning) => {
    expect(problems({ text })).toEqual([expect.stringContaining(beginning)]);
  });

  test.each([
    ["[scheduler.phase2]\nowner_ttl_seconds = 15"],
    ["[scheduler.phase2]\nstream_maxlen = 64"],
    ["[scheduler.phase2.node_snapshot]\nrefresh_interval_ms = 14999"],
    ["[scheduler.phase2.node_snapshot]\nremove_stale_after_seconds = 46"],
    ["[scheduler]\naffinity_wait_ms = 9999"],
    ["[nonce]\nhold_ttl_ms = 10000"],
    ["[limits]\npayload_bytes = 1048575\nresult_bytes = 1048575"],
    ["[job_timeout]\nack_timeout_seconds = 60\nrun_timeout_seconds = 5"],
    [good],
    [
      "[scheduler.phase2]\nenabled = true\nredis.mode = 'cluster'\nredis.cluster_urls = ['redis://r']",
    ],
  ])("%j is the last that is accepted", (text) => {
    expect(() => read({ text })).not.toThrow();
  });

  test.each([
    ["advertise_url = 'https://tenure.example.com'", "public name without auth"],
    ["advertise_url = 'http://10.0.0.5:7070'", "public name without auth"],
    ["advertise_url = 'http://127.0.0.1.example.com'", "public name without auth"],
    [
      "allowed_origins = ['http://localhost:1', 'https://a.example']",
      "foreign origin without auth",
    ],
  ])("[server] %s needs a token", (setting, beginning) => {
    const text = `[server]\n${setting}`;
    expect(problems({ text })).toEqual([expect.stringContaining(beginning)]);
    expect(() => read({ text, env: { TENURE_TOKENS: `admin:${SECRET}` } })).not.toThrow();
  });

  test("names of this machine need no token", () => {
    const text = [
      "[server]",
      "advertise_url = 'http://[::1]:7070'",
      "allowed_origins = ['http://localhost:5173', 'http://127.0.0.9:8080']",
    ].join("\n");
    expect(() => read({ text })).not.toThrow();
  });

  test("a token opens a non-loopback bind", () => {
    const text = "[server]\nhost = '0.0.0.0'";
    expect(read({ text, env: { TENURE_TOKENS: `admin:${SECRET}` } }).server.host).toBe("0.0.0.0");
  });

  describe("a wildcard host", () => {
    const env = { TENURE_TOKENS: `admin:${SECRET}`, POSTGRES_URI: "postgres://db/tenure" };
    const missing = expect.stringContaining("server.advertise_url must be set to a URL");

    test.each([
      "0.0.0.0",
      "::",
      "[::]",
      "0:0:0:0:0:0:0:0",
      "0",
      "::ffff:0.0.0.0",
    ])("%s on a shared Postgres needs advertise_url", (host) => {
      const text = `[server]\nhost = '${host}'`;
      expect(problems({ text, env })).toEqual([missing]);
      const called = `${text}\nadvertise_url = 'http://10.0.0.5:7070'`;
      expect(() => read({ text: called, env })).not.toThrow();
    });

    test("is no advertise_url either", () => {
      const text = "[server]\nhost = '10.0.0.5'\nadvertise_url = 'http://[::]:7070'";
      expect(problems({ text, env })).toEqual([missing]);
    });

    test("is accepted on the embedded store, which has one instance", () => {
      const text = "[server]\nhost = '::'";
      expect(() => read({ text, env: { ...env, POSTGRES_URI: "" } })).not.toThrow();
    });
  });

  test.each([
    ["127.0.0.1", true],
    ["127.8.9.10", true],
    ["localhost", true],
    ["LocalHost", true],
    ["::1", true],
    ["[::1]", true],
    ["0:0:0:0:0:0:0:1", true],
    ["::ffff:127.0.0.1", true],
    ["0.0.0.0", false],
    ["::", false],
    ["::ffff:10.0.0.1", false],
    ["10.0.0.1", false],
    ["128.0.0.1", false],
    ["127.0.0.1.example.com", false],
    ["localhost.example.com", false],
    ["0", false],
    ["", false],
  ])("host %j is loopback: %s", (host, loopback) => {
    expect(isLoopback(host)).toBe(loopback);
  });
});

describe("tokens", () => {
  const entry = (fields: Record<string, unknown>): string =>
    [
      "[[auth.tokens]]",
      ...Object.entries(fields).map((pair) => `${pair[0]} = ${JSON.stringify(pair[1])}`),
    ].join("\n");

  test("those of the file and of the environment add up, and only hashes remain", () => {
    const text = [
      entry({ name: "ops", role: "admin", sha256: tokenSha256("s1").toUpperCase() }),
      entry({
        name: "edge",
        role: "node",
        tenant: "acme",
        sha256: tokenSha256("s2"),
        addresses: ["9xQe"],
        pools: ["gpu"],
        node_unit: false,
        capacity_max: 4,
      }),
    ].join("\n");
    const config = read({
      text,
      env: { TENURE_TOKENS: `session:${SECRET}, signer:a:b-and-some-more-letters,` },
    });

    expect(config.auth.tokens).toEqual([
      { name: "ops", role: "admin", tenant: "default", sha256: tokenSha256("s1") },
      {
        name: "edge",
        role: "node",
        tenant: "acme",
        sha256: tokenSha256("s2"),
        addresses: ["9xQe"],
        pools: ["gpu"],
        node_unit: false,
        capacity_max: 4,
      },
      { name: "TENURE_TOKENS:1", role: "session", tenant: "default", sha256: tokenSha256(SECRET) },
      {
        name: "TENURE_TOKENS:2",
        role: "signer",
        tenant: "default",
        sha256: tokenSha256("a:b-and-some-more-letters"),
      },
    ]);
    expect(JSON.stringify(config)).not.toContain(SECRET);
  });

  test("a secret of fewer than 16 characters is refused and not repeated", () => {
    const env = { TENURE_TOKENS: "admin:fifteen-letters,node:sixteen--letters" };
    const [problem, ...others] = problems({ text: "", env });
    expect(others).toEqual([]);
    expect(problem).toMatch(/^TENURE_TOKENS: entry 1: the secret must have at least 16 characters/);
    expect(problem).not.toContain("fifteen");
  });

  test("every wrong entry is named by its place", () => {
    const text = [
      entry({ name: "ops", role: "admn", sha256: "abc", tennant: "x" }),
      entry({ role: "admin", sha256: tokenSha256("s"), secret: SECRET }),
    ].join("\n");
    expect(problems({ text, env: { TENURE_TOKENS: `${SECRET},nod:${SECRET}` } })).toEqual([
      "tenure.toml: auth.tokens entry 1: tennant is not a field of a token; did you mean tenant?",
      "tenure.toml: auth.tokens entry 2: secret is not a field of a token",
      "tenure.toml: auth.tokens entry 1: role must be one of admin, viewer, session, node, signer, peer; did you mean admin?",
      "tenure.toml: auth.tokens entry 1: sha256 must be a SHA-256 in 64 hexadecimal digits",
      "tenure.toml: auth.tokens entry 2: name must be 1 to 128 of the characters A-Z a-z 0-9 . _ : @ / -",
      "TENURE_TOKENS: entry 1: must be a table with name, role and sha256 (in TENURE_TOKENS: role:SECRET)",
      "TENURE_TOKENS: entry 2: role must be one of admin, viewer, session, node, signer, peer; did you mean node?",
    ]);
  });

  test("labels that leave no room for a node's own", () => {
    const labels = Array.from({ length: 64 }, (_, n) => `l${n} = "x"`).join(", ");
    const token = entry({ name: "edge", role: "node", sha256: tokenSha256("s") });
    expect(problems({ text: `${token}\nlabels = { ${labels} }` })).toEqual([
      "tenure.toml: auth.tokens entry 1: labels must be fewer than 64, and with the node's own less than 16384 bytes",
    ]);
  });

  test("two entries with one secret, and a limit that is no node's", () => {
    const sha256 = tokenSha256(SECRET);
    const text = entry({ name: "a", role: "viewer", sha256, pools: ["gpu"], capacity_max: 1 });
    expect(problems({ text, env: { TENURE_TOKENS: `admin:${SECRET}` } })).toEqual([
      "tenure.toml: auth.tokens entry 1: only a token with role node can have pools, capacity_max",
      "TENURE_TOKENS: entry 1: has the same secret as tenure.toml: auth.tokens entry 1, so nobody could tell which of the two is calling",
    ]);
  });

  test("the peer token may be a peer's entry, and nobody else's", () => {
    const text = `[auth]\npeer_token = "${SECRET}"`;
    expect(() => read({ text, env: { TENURE_TOKENS: `peer:${SECRET}` } })).not.toThrow();
    expect(problems({ text, env: { TENURE_TOKENS: `viewer:${SECRET}` } })).toEqual([
      "TENURE_TOKENS: entry 1: has the same secret as auth.peer_token, so its holder could call as an instance",
    ]);
  });

  test.each<[string, { text?: string; env?: Environment }]>([
    ["in place of a role", { env: { TENURE_TOKENS: `${SECRET}:admin` } }],
    ["without a role", { env: { TENURE_TOKENS: SECRET } }],
    ["twice", { env: { TENURE_TOKENS: `admin:${SECRET},node:${SECRET}` } }],
    ["as a sha256", { text: entry({ name: "a", role: "admin", sha256: SECRET }) }],
    ["as a name", { text: entry({ name: `${SECRET} {}`, role: "admin" }) }],
    ["as the list", { text: `[auth]\ntokens = "${SECRET}"` }],
    ["as a peer token of the wrong type", { text: `[auth]\npeer_token = ["${SECRET}"]` }],
    ["in a line that does not parse", { text: `[auth]\npeer_token = "${SECRET}` }],
    ["in a URL", { env: { POSTGRES_URI: `pg://u:${SECRET}@h/d` } }],
    [
      "in a Redis URL of a relation",
      {
        text: `[scheduler.phase2]\nenabled = true\nredis.mode = "cluster"\nredis.url = "redis://:${SECRET}@h"`,
      },
    ],
    ["as a mode", { env: { TENURE_NONCE_MODE: SECRET } }],
    ["as a number", { env: { TENURE_SERVER_PORT: SECRET } }],
  ])("a secret %s does not appear in the message", (_, input) => {
    expect(refusal(input).message).not.toContain(SECRET);
  });
});

describe("loading", () => {
  test("tenure.toml of the working directory is read when it is there", () => {
    const cwd = directory();
    expect(loadConfig({ cwd, env: {} }).server.port).toBe(7070);
    writeFileSync(join(cwd, "tenure.toml"), "[server]\nport = 1");
    expect(loadConfig({ cwd, env: {} }).server.port).toBe(1);
  });

  test("a named file takes its place, and problems carry its name", () => {
    const cwd = directory();
    writeFileSync(join(cwd, "tenure.toml"), "[server]\nport = 1");
    writeFileSync(join(cwd, "other.toml"), "[server]\nport = 2");
    expect(loadConfig({ path: "other.toml", cwd, env: {} }).server.port).toBe(2);

    writeFileSync(join(cwd, "other.toml"), "[server]\nport = -2");
    expect(() => loadConfig({ path: "other.toml", cwd, env: {} })).toThrow(
      "other.toml: server.port must be a whole number",
    );
  });

  test("a named file that is not there, or is a directory, is one sentence", () => {
    const cwd = directory();
    expect(() => loadConfig({ path: "gone.toml", cwd, env: {} })).toThrow(
      new ConfigError(["gone.toml: there is no such file"]),
    );
    expect(() => loadConfig({ path: ".", cwd, env: {} })).toThrow(
      new ConfigError([".: it cannot be read (EISDIR)"]),
    );
  });
});

describe("warnings", () => {
  test("defaults warn about nothing", () => {
    expect(configWarnings(read())).toEqual([]);
  });

  test("an address beyond loopback without TLS, unless a proxy terminates it", () => {
    const env = { TENURE_TOKENS: `admin:${SECRET}`, TENURE_SERVER_HOST: "10.0.0.5" };
    const plain = [expect.stringMatching(/^server\.host lets other machines in .* unencrypted/)];
    expect(configWarnings(read({ env }))).toEqual(plain);
    const tls = "[server.tls]\ncert_file = 'c'\nkey_file = 'k'";
    const proxied = "[server.tls]\nterminated_by_proxy = true";
    for (const text of [tls, proxied]) expect(configWarnings(read({ env, text }))).toEqual([]);
  });

  test("dlq_min_idle_ms is accepted and said to be ignored", () => {
    const config = read({ text: "[scheduler.phase2]\ndlq_min_idle_ms = 60000" });
    expect(configWarnings(config)).toEqual([
      expect.stringMatching(/^scheduler\.phase2\.dlq_min_idle_ms is ignored/),
    ]);
  });

  test("Redis beside the embedded store", () => {
    const env = {
      TENURE_SCHEDULER_PHASE2_ENABLED: "true",
      TENURE_SCHEDULER_PHASE2_REDIS_URL: "redis://r",
    };
    expect(configWarnings(read({ env }))).toEqual([
      expect.stringContaining("enabled on the embedded store"),
    ]);
    expect(configWarnings(read({ env: { ...env, POSTGRES_URI: "postgres://p/d" } }))).toEqual([]);
  });
});

interface Input {
  text?: string;
  env?: Environment;
  overrides?: Overrides;
}

function read({ text, env = {}, overrides }: Input = {}): Config {
  const file = text === undefined ? undefined : { path: "tenure.toml", text };
  return readConfig({ file, env, overrides });
}

function refusal(input: Input): ConfigError {
  try {
    read(input);
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error("was accepted");
}

const problems = (input: Input): readonly string[] => refusal(input).problems;

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), "tenure-config-"));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}
