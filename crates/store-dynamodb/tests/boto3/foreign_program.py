"""A program that somebody else wrote after the document (20_QUEUE_STORE.md), in another language and with another SDK.

It knows the documented tables and attributes and nothing of Ekiden. One request a line on standard input, one answer a
line on standard output, both JSON.
"""

import json
import sys
from datetime import datetime, timezone

import boto3
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.exceptions import ClientError


def now():
    # Another width than Ekiden's: microseconds and an offset.
    return datetime.now(timezone.utc).isoformat()


class Program:
    def __init__(self, endpoint, prefix):
        config = Config(retries={"mode": "standard", "total_max_attempts": 5})
        service = boto3.resource(
            "dynamodb",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="foreign",
            aws_secret_access_key="foreign",
            config=config,
        )
        self.queue = service.Table(prefix + "pm-runner-queue")
        self.runners_table = service.Table(prefix + "pm-runner-runners")

    def put(self, namespace, ids):
        for task_id in ids:
            moment = now()
            self.queue.put_item(
                Item={
                    "namespace": namespace,
                    "task_id": task_id,
                    "task_group_id": "their-group",
                    "session_id": "their-session",
                    "status": "QUEUED",
                    "prompt": "prompt of " + task_id,
                    "created_at": moment,
                    "updated_at": moment,
                },
                ConditionExpression=Attr("task_id").not_exists(),
            )
        return len(ids)

    def get(self, namespace, task_id):
        key = {"namespace": namespace, "task_id": task_id}
        item = self.queue.get_item(Key=key, ConsistentRead=True).get("Item")
        return item and {name: value for name, value in item.items() if isinstance(value, (str, list))}

    def set(self, namespace, task_id, before, after, claimed_by=None):
        """Changes a status as documented: only from the one that it was. Says whether it could."""
        update = "SET #s = :after, updated_at = :now"
        values = {":before": before, ":after": after, ":now": now()}
        if claimed_by:
            update += ", claimed_by = :me"
            values[":me"] = claimed_by
        try:
            self.queue.update_item(
                Key={"namespace": namespace, "task_id": task_id},
                UpdateExpression=update,
                ConditionExpression="#s = :before",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues=values,
            )
            return True
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            raise

    def queued(self, namespace):
        """What the documented index says is queued, page by page."""
        more = {}
        while True:
            page = self.queue.query(
                IndexName="status-index",
                KeyConditionExpression=Key("status").eq("QUEUED"),
                FilterExpression=Attr("namespace").eq(namespace),
                Limit=10,
                **more,
            )
            yield from (item["task_id"] for item in page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def everything(self, namespace):
        more = {}
        while True:
            page = self.queue.query(
                KeyConditionExpression=Key("namespace").eq(namespace), ConsistentRead=True, **more
            )
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def hunt(self, namespace):
        """Tries to claim everything: what the index offers, and every item of the namespace."""
        wanted = list(self.queued(namespace)) + [item["task_id"] for item in self.everything(namespace)]
        return [task_id for task_id in wanted if self.set(namespace, task_id, "QUEUED", "RUNNING", "their-runner")]

    def work(self, namespace):
        """Claims, does and completes whatever is queued, until three looks in a row find nothing."""
        mine, idle = [], 0
        while idle < 3:
            taken = 0
            for task_id in self.queued(namespace):
                if self.set(namespace, task_id, "QUEUED", "RUNNING", "their-runner"):
                    mine.append(task_id)
                    taken += 1
                    if not self.set(namespace, task_id, "RUNNING", "COMPLETE"):
                        raise RuntimeError(task_id + " was changed by somebody else while it ran here")
            idle = 0 if taken else idle + 1
        return mine

    def statuses(self, namespace):
        counts = {}
        for item in self.everything(namespace):
            counts[item["status"]] = counts.get(item["status"], 0) + 1
        return counts

    def unfinished(self, namespace):
        """Everything that has not ended, as far as it is text."""
        open_items = (item for item in self.everything(namespace) if item["status"] != "COMPLETE")
        return [{name: value for name, value in item.items() if isinstance(value, str)} for item in open_items]

    def answer(self, namespace, task_id, text):
        """Answers a question: the answer is the last entry of the conversation, and the task runs again."""
        entry = {"role": "user", "content": text, "timestamp": now()}
        self.queue.update_item(
            Key={"namespace": namespace, "task_id": task_id},
            UpdateExpression="SET #s = :running, updated_at = :now, "
            "conversation_history = list_append(if_not_exists(conversation_history, :none), :entry)",
            ConditionExpression="#s = :asked",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={
                ":running": "RUNNING",
                ":asked": "AWAITING_RESPONSE",
                ":now": now(),
                ":none": [],
                ":entry": [entry],
            },
        )
        return True

    def runners(self, namespace):
        page = self.runners_table.query(KeyConditionExpression=Key("namespace").eq(namespace), ConsistentRead=True)
        names = ["namespace", "runner_id", "last_heartbeat", "started_at", "status", "project_root"]
        found = [{name: item.get(name) for name in names} for item in page["Items"]]
        for runner in found:
            beat = datetime.fromisoformat(runner["last_heartbeat"].replace("Z", "+00:00"))
            runner["is_alive"] = (datetime.now(timezone.utc) - beat).total_seconds() < 120
        return found


def main():
    program = Program(sys.argv[1], sys.argv[2])
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(program, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


main()
