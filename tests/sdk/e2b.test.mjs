// SPDX-License-Identifier: Apache-2.0
// The unmodified e2b SDK against croft, given only E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { CommandExitError, NotFoundError, Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b'

const version = JSON.parse(readFileSync(new URL('./node_modules/e2b/package.json', import.meta.url))).version
console.log(`# node ${process.version}, e2b ${version}`)

for (const name of ['E2B_API_URL', 'E2B_SANDBOX_URL', 'E2B_API_KEY']) {
  assert.ok(process.env[name], `${name} is not set`)
}

// The machine may be an emulated host: what takes a second elsewhere may take ten here.
const slow = { timeoutMs: 120_000, requestTimeoutMs: 120_000 }
const template = process.env.CROFT_TEST_TEMPLATE ?? 'base'
let sandbox

before(async () => {
  const lifecycle = { onTimeout: 'pause', autoResume: true }
  sandbox = await Sandbox.create(template, { timeoutMs: 900_000, metadata: { suite: 'sdk' }, lifecycle, requestTimeoutMs: 300_000 })
})

after(async () => {
  await sandbox?.kill()
})

test('create gives an id and a running sandbox', async () => {
  assert.match(sandbox.sandboxId, /^[a-z2-7]{20}$/)
  assert.equal(await sandbox.isRunning(), true)
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.state, 'running')
  assert.ok(info.endAt > info.startedAt)
  assert.equal(info.metadata.suite, 'sdk')
})

test('list finds it by metadata', async () => {
  const page = await Sandbox.list({ query: { metadata: { suite: 'sdk' } } }).nextItems()
  assert.ok(page.some((one) => one.sandboxId === sandbox.sandboxId))
  const none = await Sandbox.list({ query: { metadata: { suite: 'no such suite' } } }).nextItems()
  assert.deepEqual(none, [])
})

test('commands.run in the foreground', async () => {
  const result = await sandbox.commands.run('echo out; echo err >&2; uname -s', slow)
  assert.equal(result.exitCode, 0)
  assert.equal(result.stdout, 'out\nLinux\n')
  assert.equal(result.stderr, 'err\n')
})

test('envs and cwd', async () => {
  const result = await sandbox.commands.run('echo "$A $PWD"', { ...slow, envs: { A: 'b c' }, cwd: '/tmp' })
  assert.equal(result.stdout, 'b c /tmp\n')
})

test('output is streamed while the command runs', async () => {
  const seen = []
  const result = await sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 0.5; done', {
    ...slow,
    onStdout: (data) => seen.push(data),
  })
  assert.equal(result.stdout, '1\n2\n3\n')
  assert.ok(seen.length >= 2, `came in ${seen.length} pieces`)
})

test('a failing command throws with its status and output', async () => {
  await assert.rejects(sandbox.commands.run('echo no >&2; exit 7', slow), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.equal(error.exitCode, 7)
    assert.equal(error.stderr, 'no\n')
    return true
  })
})

test('a background command is listed, gets stdin, and is killed', async () => {
  const handle = await sandbox.commands.run('cat; sleep 600', { ...slow, background: true, stdin: true })
  const list = await sandbox.commands.list()
  assert.ok(list.some((one) => one.pid === handle.pid))
  await sandbox.commands.sendStdin(handle.pid, 'hello\n')
  while (!handle.stdout.includes('hello')) await new Promise((resolve) => setTimeout(resolve, 50))
  assert.equal(await handle.kill(), true)
  await assert.rejects(handle.wait(), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.equal(error.exitCode, -1)
    assert.match(error.error, /killed/)
    return true
  })
  assert.equal(await sandbox.commands.kill(handle.pid), false)
})

test('connect finds a command again', async () => {
  const handle = await sandbox.commands.run('sleep 2; echo done', { ...slow, background: true })
  await handle.disconnect()
  const again = await sandbox.commands.connect(handle.pid, slow)
  const result = await again.wait()
  assert.equal(result.exitCode, 0)
  assert.equal(result.stdout, 'done\n')
})

test('a command that runs into its timeout is killed', async () => {
  await assert.rejects(sandbox.commands.run('sleep 611', { timeoutMs: 3_000 }), TimeoutError)
  let left = ''
  for (let i = 0; i < 60; i++) {
    left = (await sandbox.commands.run('pgrep -fx "sleep 611" || true', slow)).stdout
    if (left === '') break
    await new Promise((resolve) => setTimeout(resolve, 500))
  }
  assert.equal(left, '', 'the process is still there')
})

test('a command that does not exist', async () => {
  await assert.rejects(sandbox.commands.run('no-such-command', slow), (error) => {
    assert.equal(error.exitCode, 127)
    return true
  })
  await assert.rejects(sandbox.commands.connect(999999), NotFoundError)
})

test('pause keeps memory and processes, connect wakes, and so does a call', async () => {
  const handle = await sandbox.commands.run('read word; echo "$word"', { ...slow, background: true, stdin: true })
  await sandbox.commands.run('echo kept >/dev/shm/kept', slow)
  assert.equal(await sandbox.pause(slow), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  const paused = await Sandbox.list({ query: { state: ['paused'] } }).nextItems()
  assert.ok(paused.some((one) => one.sandboxId === sandbox.sandboxId))
  assert.equal(await sandbox.pause(slow), false)
  sandbox = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 900_000, requestTimeoutMs: 300_000 })
  assert.equal((await sandbox.getInfo()).state, 'running')
  assert.equal((await sandbox.commands.run('cat /dev/shm/kept', slow)).stdout, 'kept\n')
  const again = await sandbox.commands.connect(handle.pid, slow)
  await sandbox.commands.sendStdin(handle.pid, 'awake\n')
  assert.equal((await again.wait()).stdout, 'awake\n')
  assert.equal(await sandbox.pause(slow), true)
  assert.equal(await sandbox.isRunning(), false) // to ask does not wake it
  assert.equal((await sandbox.commands.run('cat /dev/shm/kept', slow)).stdout, 'kept\n') // a call does: autoResume
  assert.equal((await sandbox.getInfo()).state, 'running')
})

test('a snapshot, a sandbox that begins as it, and forks', async () => {
  // an emulated host's disk is small: what the quickstart left up makes room
  for (const one of await Sandbox.list().nextItems()) {
    if (one.sandboxId !== sandbox.sandboxId) await Sandbox.kill(one.sandboxId)
  }
  await sandbox.commands.run('echo moment >/dev/shm/moment', slow)
  const snapshot = await sandbox.createSnapshot({ requestTimeoutMs: 300_000 })
  const found = await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems()
  assert.deepEqual(found.map((one) => one.snapshotId), [snapshot.snapshotId])
  await sandbox.commands.run('echo later >/dev/shm/moment', slow)
  const begun = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 600_000, requestTimeoutMs: 600_000 })
  assert.equal((await begun.commands.run('cat /dev/shm/moment', slow)).stdout, 'moment\n')
  assert.equal((await sandbox.commands.run('cat /dev/shm/moment', slow)).stdout, 'later\n')
  await begun.kill()
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  // where the disk is small, this waits for the room of what was just killed
  const forks = await sandbox.fork({ count: 1, timeoutMs: 600_000, requestTimeoutMs: 600_000 })
  assert.equal(forks.length, 1)
  assert.ok(forks[0] instanceof Sandbox, String(forks[0]))
  assert.equal((await forks[0].commands.run('cat /dev/shm/moment', slow)).stdout, 'later\n')
  await forks[0].kill()
})

test('setTimeout and kill', async () => {
  await sandbox.setTimeout(600_000)
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
})
