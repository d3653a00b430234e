import assert from "node:assert";
import {
  deploymentsOf,
  runningStatuses,
  SLEEPER,
  withDatabase,
} from "@tenure/testing/fleet/deployments";
import { startUnit } from "@tenure/testing/fleet/node-unit";
import { until } from "@tenure/testing/until";
import { countEvents, startFleet } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

const DEADLINE_MS = 120_000;

/** Rows past the API, and packages that must not be installed: each seen, none in the way of the others. */
export const deploymentsBadRows: Proof = {
  name: "deployments-bad-rows",
  summary:
    "bad types, daemons with an address, packages nobody trusts: coded, explained, and skipped",
  async run({ print }: ProofRun) {
    const fleet = await startFleet("memory");
    try {
      const instance = await fleet.startInstance();
      const deployments = deploymentsOf(instance.url);
      const unit = await startUnit({
        name: "careful",
        urls: [instance.url],
        env: { TRUSTED_PACKAGE_REGEXP: "@acme/.+@.+" },
      });
      await withDatabase(fleet.postgres.uri(), (db) =>
        db.query(
          `insert into deployment (id, name, command, package_name, package_version, type, address) values
             (gen_random_uuid(), 'cron',      $1, '', '', 'cron', ''),
             (gen_random_uuid(), 'empty',     $1, '', '', '', $2),
             (gen_random_uuid(), 'stray',     $1, '', '', 'daemon', 'somewhere'),
             (gen_random_uuid(), 'untrusted', '', 'left-pad', '1.3.0', 'deployment', $2),
             (gen_random_uuid(), 'alias',     '', '@acme/web', 'npm:other@1', 'deployment', $2),
             (gen_random_uuid(), 'git',       '', '@acme/web', 'git+https://example.invalid/x.git', 'deployment', $2),
             (gen_random_uuid(), 'escaping',  '', '../../evil', '1.0.0', 'deployment', $2),
             (gen_random_uuid(), 'nothing',   '', '', '', 'deployment', $2),
             (gen_random_uuid(), 'good',      $1, '', '', 'deployment', '')`,
          [SLEEPER, unit.address],
        ),
      );
      const isRunning = async (name: string) =>
        runningStatuses(await deployments.read(name)).length === 1;
      await until(async () => (await isRunning("good")) && (await isRunning("stray")), {
        deadlineMs: DEADLINE_MS,
        what: "the good rows to run",
      });
      print("the good deployment and the daemon with an address run");

      for (const name of ["untrusted", "alias", "git", "escaping", "nothing"]) {
        const refused = async () => {
          const view = await deployments.read(name);
          return view.status.find(({ state }) => state === "refused");
        };
        const status = await until(refused, { deadlineMs: DEADLINE_MS, what: `${name} refused` });
        print(`${name}: refused (${status.last_error}); why: ${await deployments.why(name)}`);
      }
      for (const [name, code] of [
        ["cron", "ERR_INVALID_TYPE"],
        ["stray", "ERR_DAEMON_ADDRESS_SET"],
      ] as const) {
        const lines = () =>
          unit
            .stderr()
            .split("\n")
            .filter((line) => line.includes(code) && line.includes(`"${name}"`));
        await until(() => lines().length > 0, {
          deadlineMs: DEADLINE_MS,
          what: `${code} in the log`,
        });
        await deployments.change("good", { lost_after_ms: Math.ceil(performance.now()) }); // wakes a pass
        assert.equal(lines().length, 1, `${code} is said once`);
      }
      const skipped = await countEvents(instance.url, "deployment.skipped");
      const ignored = await countEvents(instance.url, "daemon.address-ignored");
      print(
        `bad types: ${skipped} events for 2 rows; daemon with an address: ${ignored} event for 1 row`,
      );
      assert.deepEqual({ skipped, ignored }, { skipped: 2, ignored: 1 });
      assert.deepEqual(await unit.stop(DEADLINE_MS), { code: 0, signal: null });
    } finally {
      await fleet.stop();
    }
  },
};
