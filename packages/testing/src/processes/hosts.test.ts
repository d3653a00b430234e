import { createServer, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { createHost } from "./hosts.ts";
import { startProcess } from "./process.ts";

const canMakeHosts = (() => {
  const host = createHost(1);
  host?.discard();
  return host !== undefined;
})();

describe("a host of its own", () => {
  // Root alone may make one. The fault suite uses the black holes of its proxies elsewhere, and says so.
  test.runIf(canMakeHosts)(
    "loses packets both ways while it is cut, and resets nothing",
    async () => {
      const host = createHost(1)!;
      const [link] = host.links;
      const sockets: Socket[] = [];
      let heard = "";
      const server = createServer((socket) => {
        sockets.push(socket);
        socket.on("data", (bytes) => {
          heard += bytes;
        });
      });
      await new Promise<void>((resolve) => server.listen(0, link!.here, resolve));
      const { port } = server.address() as { port: number };
      const program = `const s=require("net").connect(${port},"${link!.here}");s.on("close",()=>console.log("closed"));
      s.on("data",(d)=>console.log("heard "+d));setInterval(()=>s.write("x"),50);console.log("up")`;
      const running = startProcess(host.wrap({ command: process.execPath, args: ["-e", program] }));
      try {
        await running.waitForLine(/up/);
        await expect.poll(() => heard.length).toBeGreaterThan(2);
        link!.cut();
        await wait(100); // what was on its way
        const before = heard.length;
        sockets[0]!.write("lost");
        await wait(500);
        expect(heard.length).toBe(before);
        expect(running.stdout()).not.toContain("heard");
        link!.heal();
        await expect.poll(() => heard.length, { timeout: 10_000 }).toBeGreaterThan(before);
        await running.waitForLine(/heard lost/, 10_000);
        expect(running.stdout()).not.toContain("closed");
      } finally {
        await running.kill9();
        for (const socket of sockets) socket.destroy();
        server.close();
        host.discard();
      }
    },
  );
});
