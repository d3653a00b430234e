import { ServerToSession, type SessionToServer } from "@tenure/protocol";
import WebSocket from "ws";
import { until } from "../until.ts";

type Received<Type extends ServerToSession["type"]> = Extract<ServerToSession, { type: Type }>;

/** A session's socket that sends what the test passes to it. */
export interface RawSession {
  readonly socket: WebSocket;
  readonly received: ServerToSession[];
  readonly closed: Promise<{ code: number }>;
  send(message: SessionToServer | Record<string, unknown> | string): void;
  receive<Type extends ServerToSession["type"]>(type: Type): Promise<Received<Type>>;
  init(fields?: Record<string, unknown>): Promise<Received<"session_init_ack">>;
  close(): Promise<void>;
}

export async function connectRawSession({
  url,
  headers = {},
}: {
  url: string;
  headers?: Record<string, string>;
}): Promise<RawSession> {
  const socket = new WebSocket(`${url.replace("http", "ws")}/ws/session`, { headers });
  const received: ServerToSession[] = [];
  socket.on("message", (data) => received.push(ServerToSession.parse(JSON.parse(data.toString()))));
  socket.on("error", () => {});
  const closed = new Promise<{ code: number }>((resolve) => {
    socket.once("close", (code) => resolve({ code }));
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  const send: RawSession["send"] = (message) =>
    socket.send(typeof message === "string" ? message : JSON.stringify(message));
  const receive: RawSession["receive"] = (type) =>
    until(() => received.find((message) => message.type === type) as never, {
      what: `${type} from the server; last received ${JSON.stringify(received.slice(-5))}`,
    });
  return {
    socket,
    received,
    closed,
    send,
    receive,
    init(fields = {}) {
      send({ type: "session_init", protocol_version: 1, ...fields });
      return receive("session_init_ack");
    },
    async close() {
      socket.close();
      await closed;
    },
  };
}
