import assert from "node:assert";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import type { Proof } from "./proof.ts";

const FILE = `
[server]
prot = 7071

[job_timeout]
attempts_max = "three"

[nonce]
lease_ttl_ms = 10000
hold_ttl_ms = 5000
`;

export const badConfig: Proof = {
  name: "bad-config",
  summary: "a typo, a wrong type and a bad relation: one message names all three, without a stack",
  async run({ print }) {
    const directory = scratchDirectory("bad-config");
    writeFileSync(join(directory, "tenure.toml"), FILE);
    const server = startTenure(["server"], { cwd: directory });
    const { code } = await server.exited;
    const message = server.stderr();
    for (const line of message.split("\n")) print(line);
    print(`exit code ${code}`);

    assert.equal(code, 1);
    assert.equal(server.stdout(), "", "nothing on stdout: no server is ready");
    assert.match(message, /^The configuration has 3 problems:\n( {2}- .+\n?){3}$/);
    assert.match(message, /server\.prot is not a setting; did you mean server\.port\?/);
    assert.match(message, /job_timeout\.attempts_max must be a whole number/);
    assert.match(message, /nonce\.hold_ttl_ms must be at least nonce\.lease_ttl_ms/);
    assert.doesNotMatch(message, /^\s+at .+:\d+/m, "no stack trace");
  },
};
