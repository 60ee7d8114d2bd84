#!/usr/bin/env node
// Here rather than in dist, since npm links only commands that are there when it installs.
import '../dist/main.js';
