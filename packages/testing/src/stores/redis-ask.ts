import { connect } from "node:net";

/**
 * One command by Redis's inline protocol, and the first bytes of the answer as they came. Enough to
 * ask a server how it is, without a client that reconnects, retries and follows redirections.
 */
export function askRedis(port: number, command: string, timeoutMs = 30_000): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1" });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`no answer to ${command}`)));
    socket.once("connect", () => socket.write(`${command}\r\n`));
    socket.once("data", (reply) => {
      resolve(reply.toString().trim());
      socket.destroy();
    });
    socket.once("error", reject);
    socket.once("close", () => reject(new Error(`closed without an answer to ${command}`)));
  });
}
