// Who may import whom. The same rules in a picture: ARCHITECTURE.md, "Who may import whom".

const server = (folder) => `^packages/server/src/${folder}/`;

/** @type {import("dependency-cruiser").IConfiguration} */
module.exports = {
  forbidden: [
    {
      name: "protocol-knows-only-zod",
      comment:
        "The words both ends share must run anywhere: the protocol imports zod and itself, and its pattern RE2.",
      severity: "error",
      from: { path: "^packages/protocol/src/", pathNot: "\\.test\\.ts$" },
      to: { pathNot: ["^packages/protocol/src/", "node_modules/(zod|re2js)/"] },
    },
    {
      name: "only-the-pattern-knows-re2",
      comment: "RE2 is 260 kB: browsers and SDK clients load the protocol, and must not load that.",
      severity: "error",
      from: {
        path: "^packages/(protocol|sdk|console|cli)/src/",
        pathNot: ["^packages/protocol/src/pattern\\.ts$", "\\.test\\.ts$"],
      },
      to: { path: ["node_modules/re2js/", "^packages/protocol/src/pattern\\.ts$"] },
    },
    {
      name: "sdk-knows-only-protocol",
      comment:
        "Applications install the SDK: it must not bring the server, the agent or the CLI with it.",
      severity: "error",
      from: { path: "^packages/sdk/src/" },
      to: { path: "^packages/(server|agent|cli|console)/" },
    },
    {
      name: "server-knows-only-protocol",
      comment: "The server is nobody's client.",
      severity: "error",
      from: { path: "^packages/server/src/" },
      to: { path: "^packages/(sdk|agent|cli|console)/" },
    },
    {
      name: "agent-and-console-know-only-the-sdk",
      comment: "A node needs a URL and a token, never a store: nothing of the server may reach it.",
      severity: "error",
      from: { path: "^packages/(agent|console)/src/" },
      to: { path: "^packages/(server|cli)/" },
    },
    {
      name: "console-and-agent-are-apart",
      comment: "One runs in a browser, the other on a machine.",
      severity: "error",
      from: { path: "^packages/(agent|console)/src/" },
      to: { path: "^packages/(agent|console)/", pathNot: "^packages/$1/" },
    },
    {
      name: "cli-loads-server-and-agent-when-asked",
      comment:
        "`tenure --help` must not pay for a server: only `import()` inside dev, server and node.",
      severity: "error",
      from: { path: "^packages/cli/src/" },
      to: { path: "^packages/(server|agent)/", dynamic: false },
    },
    {
      name: "edges-never-touch-a-store",
      comment:
        "An edge parses, calls the domain once, renders. Statements and scripts are the domain's.",
      severity: "error",
      from: { path: server("(http|gateway)"), pathNot: "\\.test\\.ts$" },
      to: { path: server("store") },
    },
    {
      name: "domains-are-apart",
      comment:
        "Jobs, deployments and nonces share membership, delivery and the stores, never each other.",
      severity: "error",
      from: { path: server("(jobs|deployments|nonces)") },
      to: { path: server("(jobs|deployments|nonces)"), pathNot: server("$1") },
    },
    {
      name: "jobs-decide-and-remember-without-a-store",
      comment:
        "Policy is pure and memory is state of one process: neither reads or writes a store, so both are tested without one.",
      severity: "error",
      from: { path: server("jobs/(policy|memory)"), pathNot: "\\.test\\.ts$" },
      to: { path: [server("jobs/(store|flow|turns|api)"), server("store")] },
    },
    {
      name: "jobs-api-runs-no-script",
      comment:
        "The API reads records and calls the flow. Scripts are defined in jobs/store and jobs/turns, and write through the flow.",
      severity: "error",
      from: { path: server("jobs/api"), pathNot: "\\.test\\.ts$" },
      to: {
        path: [
          "^packages/server/src/store/script",
          "^packages/server/src/jobs/store/(transition|slot|recovery-index|undelivered|ended|storm|waiting)-store\\.ts$",
          "^packages/server/src/jobs/turns/turn-store\\.ts$",
        ],
      },
    },
    {
      name: "jobs-store-knows-no-flow",
      comment: "A script is called by the flow, and calls nothing of it.",
      severity: "error",
      from: { path: server("jobs/store"), pathNot: "\\.test\\.ts$" },
      to: { path: server("jobs/(flow|memory|turns|api)") },
    },
    {
      name: "secrets-know-no-domain",
      comment: "Who may read a value is the domain's to decide; the secrets only keep it.",
      severity: "error",
      from: { path: server("secrets"), pathNot: "\\.test\\.ts$" },
      to: { path: server("(jobs|deployments|nonces|membership|delivery|peers|access)") },
    },
    {
      name: "domains-know-no-edge",
      comment: "What a job means does not depend on whether a socket or a request brought it.",
      severity: "error",
      from: {
        path: server(
          "(jobs|deployments|nonces|membership|delivery|peers|access|audit|secrets|store|kernel)",
        ),
      },
      to: { path: server("(http|gateway)") },
    },
    {
      name: "membership-and-delivery-know-no-domain",
      comment: "They carry what the domains say without knowing what it means.",
      severity: "error",
      from: { path: server("(membership|delivery)") },
      to: { path: server("(jobs|deployments|nonces)") },
    },
    {
      name: "peers-know-only-actor-and-kernel",
      comment: "One authenticated call to another instance, the same for every domain.",
      severity: "error",
      from: { path: server("peers"), pathNot: "\\.test\\.ts$" },
      to: {
        path: "^packages/server/src/",
        pathNot: [server("(peers|kernel)"), "/audit/actor\\.ts$"],
      },
    },
    {
      name: "stores-know-only-the-kernel",
      comment: "A store holds things for whoever asks.",
      severity: "error",
      from: { path: server("store"), pathNot: "\\.test\\.ts$" },
      to: {
        path: server("(jobs|deployments|nonces|membership|delivery|peers|access|audit|secrets)"),
      },
    },
    {
      name: "kernel-knows-nothing",
      comment: "Clock, random, loops, logs: no word of Tenure in them.",
      severity: "error",
      from: { path: server("kernel"), pathNot: "\\.test\\.ts$" },
      to: { path: "^packages/", pathNot: server("kernel") },
    },
    {
      name: "only-app-knows-every-part",
      comment: "`app.ts` wires; only `main.ts` and the package's index see it.",
      severity: "error",
      from: {
        path: "^packages/server/src/",
        pathNot: "^packages/server/src/(main|index|app)\\.ts$|\\.test\\.ts$",
      },
      to: { path: "^packages/server/src/(app|main)\\.ts$" },
    },
    {
      name: "tests-stay-in-tests",
      comment: "Product code must not need what is not shipped.",
      severity: "error",
      from: { path: "^packages/[^/]+/src/", pathNot: "\\.test\\.ts$" },
      to: { path: "^(tests|bench)/|^packages/[^/]+/testing/|\\.test\\.ts$" },
    },
    {
      name: "only-tests-import-testing",
      comment:
        "`@tenure/testing` is private: a published package that imported it would not start.",
      severity: "error",
      from: {
        path: "^packages/[^/]+/(src|bin)/",
        pathNot: ["^packages/testing/", "\\.test\\.ts$"],
      },
      to: { path: "^packages/testing/" },
    },
    {
      name: "no-cycles",
      comment: "Two files that need each other are one file, or three.",
      severity: "error",
      from: {},
      to: { circular: true },
    },
    {
      name: "no-unresolvable",
      comment: "An import that resolves to nothing was checked by nobody.",
      severity: "error",
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "/dist/" },
    tsPreCompilationDeps: true,
    // With TypeScript 7 alone the cruiser reads no .ts file and reports success. swc tells types and values not
    // apart, so a rule holds for both.
    parser: "swc",
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["source", "import", "node", "default"],
      extensions: [".ts", ".tsx", ".js", ".cjs"],
    },
  },
};
