import { render } from "preact";
import { App } from "./app.tsx";
import { startClock } from "./clock.ts";
import { followLinks } from "./router.ts";
import "./style/tokens.css";
import "./style/base.css";
import "./style/shell.css";
import "./style/parts.css";
import "./style/list.css";
import "./style/pages.css";
import { applyTheme } from "./theme.ts";

applyTheme();
followLinks();
startClock();
render(<App />, document.getElementById("app")!);
