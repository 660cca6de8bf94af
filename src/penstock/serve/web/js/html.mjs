// The one place that binds preact to its templates.

import htm from "../vendor/htm.mjs";
import { Fragment, h, render } from "../vendor/preact.mjs";

export { useCallback, useEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.mjs";
export { Fragment, h, render };
export const html = htm.bind(h);
